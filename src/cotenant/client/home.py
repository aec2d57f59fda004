"""Where the service is and what opens it: the environment, else the files that `cotenant serve` leaves at home."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.core.errors import InputError

DEFAULT_URL = "http://127.0.0.1:8470"


def home() -> Path:
    """COTENANT_HOME, or ~/.cotenant."""
    return Path(os.environ.get("COTENANT_HOME") or Path.home() / ".cotenant").absolute()


def find_url(url: str | None = None) -> str:
    """Given, else COTENANT_URL, else the file `url`, else the default of `cotenant serve`."""
    found = url or os.environ.get("COTENANT_URL") or _text(home() / "url") or DEFAULT_URL
    if not found.startswith(("http://", "https://")):
        raise InputError(f"the service's URL '{found}' must begin with http:// or https://")
    return found.rstrip("/")


def find_token(token: str | None = None) -> str:
    """Given, else COTENANT_TOKEN, else the file `token`; '' where there is none."""
    found = token or os.environ.get("COTENANT_TOKEN") or _text(home() / "token")
    if not found.isascii() or not found.isprintable():
        raise InputError("the token holds characters that no token has: see COTENANT_TOKEN or the file 'token' at home")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from None
