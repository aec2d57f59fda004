"""Where the service is, what opens it, and by what it is known: the environment, else what lies at home.

What lies at home is for the service of this home only: its token never goes to whatever COTENANT_URL names.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cotenant.core.errors import InputError

DEFAULT_URL = "http://127.0.0.1:8470"
RENEW_BEFORE_S = 60.0
PIN = "~"  # between a token and the fingerprint of its service's certificate


def home() -> Path:
    """COTENANT_HOME, or ~/.cotenant."""
    return Path(os.environ.get("COTENANT_HOME") or Path.home() / ".cotenant").absolute()


@dataclass(frozen=True, slots=True)
class Target:
    """A service and the secret for it. `pin`: the fingerprint of its certificate; `own`: it is the one of this home."""

    url: str
    secret: str = ""
    pin: str = ""
    own: bool = False
    others: tuple[str, ...] = ()  # where the same service may answer instead: it moves when its leader dies

    def everywhere(self) -> tuple[Target, ...]:
        """One for each address."""
        all_ = (self.url, *self.others)
        return tuple(replace(self, url=url, others=tuple(one for one in all_ if one != url)) for url in all_)

    @property
    def socket(self) -> str:
        """The path of its Unix socket; '' over TCP."""
        return self.url.removeprefix("unix:") if self.url.startswith("unix:") else ""

    @property
    def signed_on(self) -> bool:
        """Whether the secret is a token of a sign-on provider."""
        return self.secret.count(".") == 2


def find(url: str | None = None, token: str | None = None) -> Target:
    """Given, else COTENANT_URL, else the home's own: its socket, its URL, or the default; where signed on, that.

    Of a service with a standby, both addresses, with a comma between them.
    """
    given, folder = url or os.environ.get("COTENANT_URL") or "", home()
    secret, _, pin = (token or os.environ.get("COTENANT_TOKEN") or "").partition(PIN)
    kept, login = _text(folder / "url"), read_login(folder)
    own = not given or given.rstrip("/") == kept.rstrip("/")
    if not given and not kept and login.url:
        given, own = login.url, False
    named = given or _socket(folder) or kept or DEFAULT_URL
    addresses = [part.strip() for part in named.split(",") if part.strip()] if "," in named else [named]
    for one in addresses:
        if not one.startswith(("http://", "https://", "unix:/")):
            raise InputError(f"the service's URL '{one}' must begin with http://, https:// or unix:/")
    found, *others = (one.rstrip("/") for one in addresses)
    if own:
        secret = secret or ("" if _mine(found) else _text(folder / "token"))
        pin = pin or _text(folder / "fingerprint")
    if not secret and login.url == found:
        login = _fresh(folder, login)
        secret, pin = login.token, pin or login.pin
    if not secret.isascii() or not secret.isprintable():
        raise InputError("the token holds characters that no token has: see COTENANT_TOKEN or the file 'token' at home")
    return Target(found, secret, pin.removeprefix("sha256:").lower(), own, tuple(others))


def _socket(folder: Path) -> str:
    path = folder.absolute() / "api.sock"
    return f"unix:{path}" if path.is_socket() else ""


def page_url(url: str) -> str:
    """Where a browser finds the page of the service at this URL: over TCP, also where we came by the socket."""
    if not url.startswith("unix:"):
        return url
    kept = _text(Path(url.removeprefix("unix:")).parent / "url")
    if not kept:
        raise InputError(f"'{url}' is no address for a browser: name the service by COTENANT_URL=http://...")
    return kept.rstrip("/").replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _mine(url: str) -> bool:
    """Whether this is a Unix socket at which the kernel's word for who we are is enough."""
    if not url.startswith("unix:"):
        return False
    return os.geteuid() in (0, os.stat(url.removeprefix("unix:")).st_uid)


@dataclass(frozen=True, slots=True)
class Login:
    """What `cotenant login` keeps: a provider's token for one service."""

    url: str = ""
    token: str = ""
    pin: str = ""
    refresh: str = ""
    issuer: str = ""
    client: str = ""
    secret: str = ""
    expires_s: float = 0.0


def read_login(folder: Path) -> Login:
    """The kept one, or an empty one."""
    text = _text(folder / "login.json")
    try:
        return Login(**json.loads(text)) if text else Login()
    except (ValueError, TypeError):
        raise InputError(f"'{folder / 'login.json'}' cannot be read: delete it and `cotenant login` again") from None


def keep_login(folder: Path, login: Login) -> None:
    """Write it down for its owner only."""
    from dataclasses import asdict

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f"login.json.{os.getpid()}"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(login), file)
    fresh.replace(folder / "login.json")


def _fresh(folder: Path, login: Login) -> Login:
    """The login, renewed where its time is nearly over."""
    if time.time() < login.expires_s - RENEW_BEFORE_S or not login.refresh:
        return login
    from cotenant.client.login import renewed

    login = renewed(login)
    keep_login(folder, login)
    return login


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from None
