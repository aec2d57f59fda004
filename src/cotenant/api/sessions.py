"""Browsers that have signed in: who each is by its cookie, one-time codes for links, and how often one may try.

The server keeps digests only: of cookies for as long as they hold, in a file so that a restart signs nobody out, and of
codes for a minute. A session is no more than its token: each request looks up anew whose that is and what it may.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from http.cookies import CookieError, SimpleCookie
from math import inf, isfinite
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Scope

from cotenant.api.shares import Bucket
from cotenant.core.proof import digest
from cotenant.service.facade import Caller, Role

LASTS_S = 12 * 3600.0
CODE_S = 60.0
MOST_SESSIONS, MOST_CODES = 10_000, 100
HEADER = b"x-cotenant-window"  # on every write of the page; no other origin can send it without being asked
_TRIES_RATE, _TRIES_BURST = 0.2, 10.0
_MOST_ADDRESSES = 1000


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """Who signed in and until when: by a token (of the id of the caller), a provider, or as a user of this machine."""

    caller: Caller
    uid: int = -1
    until_s: float = inf

    @property
    def by_provider(self) -> bool:
        """Whether a sign-on provider's token opened it, which is known by its end alone."""
        return self.caller.token.startswith("oidc:")


class Sessions:
    """The sessions of one service; in `path` where one is given."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path, self.now_s = path, clock
        self._open: dict[str, BrowserSession] = {}
        self._codes: dict[str, BrowserSession] = {}
        self._tries: dict[str, Bucket] = {}
        if path is not None and path.exists():
            with suppress(OSError, ValueError, KeyError, TypeError):  # then everybody signs in again
                rows = json.loads(path.read_text(encoding="utf-8"))
                self._open = {name: _read(row) for name, row in rows.items()}

    def begin(self, session: BrowserSession) -> tuple[str, BrowserSession]:
        """Open one; its cookie, and until when it holds."""
        made = replace(session, until_s=min(session.until_s, self.now_s() + LASTS_S))
        cookie = secrets.token_urlsafe(32)
        self._open = {name: one for name, one in self._open.items() if one.until_s > self.now_s()}
        while len(self._open) >= MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        self._open[digest(cookie)] = made
        self._save()
        return cookie, made

    def find(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie, unless it is over."""
        found = self._open.get(digest(cookie)) if cookie else None
        return found if found is not None and self.now_s() < found.until_s else None

    def end(self, cookie: str) -> None:
        """Sign out."""
        if self._open.pop(digest(cookie), None) is not None:
            self._save()

    def new_code(self, session: BrowserSession) -> str:
        """A code that opens a session like this, once and within a minute."""
        now_s = self.now_s()
        self._codes = {name: one for name, one in self._codes.items() if one.until_s > now_s}
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[digest(code)] = replace(session, until_s=now_s + CODE_S)
        return code

    def redeem(self, code: str) -> BrowserSession | None:
        """Whose code this is; it is worthless from now on."""
        found = self._codes.pop(digest(code), None)
        return replace(found, until_s=inf) if found is not None and self.now_s() < found.until_s else None

    def may_try(self, address: str) -> bool:
        """Whether somebody at this address may try to sign in once more."""
        if len(self._tries) > _MOST_ADDRESSES:
            self._tries.clear()
        return self._tries.setdefault(address, Bucket(_TRIES_RATE, _TRIES_BURST)).take()

    def _save(self) -> None:
        if self._path is None:
            return
        rows = {name: {**asdict(one), "caller": _written(one.caller)} for name, one in self._open.items()}
        new = self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk: they hold until the service ends
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(rows, file)
            os.replace(new, self._path)


def _written(caller: Caller) -> dict[str, Any]:
    """Without the tenants that he administers: those are looked up."""
    return {"name": caller.name, "role": str(caller.role), "tenant": caller.tenant, "token": caller.token}


def _read(row: dict[str, Any]) -> BrowserSession:
    who, until_s = row["caller"], float(row["until_s"])
    if not isfinite(until_s):
        raise ValueError("a session without an end")
    return BrowserSession(
        Caller(who["name"], Role(who["role"]), who["tenant"], token=who["token"]), int(row["uid"]), until_s
    )


def cookie_name(scope: Scope) -> str:
    """Browsers do not keep the cookies of two ports apart, so the name does."""
    server = scope.get("server") or ("", 0)
    return f"cotenant_{server[1] or 0}"


def cookie_of(scope: Scope) -> str:
    """The session cookie of a request; '' without."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            with suppress(CookieError):
                found = SimpleCookie(value.decode("latin-1")).get(cookie_name(scope))
                if found is not None and len(found.value) <= 100:
                    return found.value
    return ""


def is_ours(scope: Scope, writes: bool) -> bool:
    """Whether our own page made a request, as browsers tell: no other may use the cookie, not even of this host.

    A write must carry our header too, which a browser lets no other origin send.
    """
    told = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if told.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    if not writes:
        return True
    origin = told.get(b"origin", "")
    return HEADER in told and (not origin or urlsplit(origin).netloc == told.get(b"host", ""))
