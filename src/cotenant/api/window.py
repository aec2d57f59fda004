"""The window: the page at `/`, its files, and how a browser signs in.

Whoever shows a token, or a code made for him by `cotenant open`, gets a cookie that scripts cannot read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse

from cotenant import __version__
from cotenant.api import schemas as s
from cotenant.api.auth import LINK, SESSION, bearer, by_cookie, who
from cotenant.api.door import NOBODY, Forbidden, answer, caller_of, door_of, encode
from cotenant.api.sessions import CODE_S, BrowserSession, cookie_name, cookie_of, is_ours
from cotenant.service.facade import Caller, NotFound, TooMany

DIST = Path(__file__).parent / "web_dist"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILE = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,120}$"
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Cotenant</title>
<h1>Cotenant answers, but its page is not built</h1>
<p>In a checkout of the sources, run <code>make web</code> and load this page again: it needs Node, or fetches it.
Installed packages bring the page with them.</p><p>The API and the command line work without it.</p></html>
"""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files of the page in a folder."""

    folder: Path = field(default=DIST)

    def index(self) -> Response:
        """The page; one that says how to build it where that was not done."""
        headers = {"Content-Security-Policy": CSP, "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer"}
        path = self.folder / "index.html"
        if path.is_file():
            return FileResponse(path, headers=headers, media_type="text/html; charset=utf-8")
        return Response(_NOT_BUILT, headers=headers, media_type="text/html; charset=utf-8")

    def file(self, name: str, lasting: bool) -> Response:
        """One of its files; those named after their contents never change."""
        path = self.folder / name
        if not path.is_file():
            raise NotFound("no such file of the page")
        kept = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return FileResponse(path, headers={"Cache-Control": kept})


PAGE = PageFiles()


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def index() -> Response:
    """The page."""
    return PAGE.index()


@router.get("/favicon.svg", include_in_schema=False)
async def icon() -> Response:
    """Its sign."""
    return PAGE.file("favicon.svg", lasting=False)


@router.get("/assets/{name}", include_in_schema=False)
async def asset(name: Annotated[str, InPath(pattern=_FILE)]) -> Response:
    """Its scripts and styles."""
    return PAGE.file(f"assets/{name}", lasting=True)


@router.post(SESSION, responses=s.answers(s.SignedIn), tags=["session"], openapi_extra={"security": []})
async def sign_in(request: Request, body: s.SignIn) -> Response:
    """Sign a browser in, by a token or by the code of a link; the answer sets a cookie. Attempts are limited."""
    door = door_of(request)
    if not is_ours(request.scope, writes=True):
        raise Forbidden("only the service's own page signs in: send X-Cotenant-Window, and no other Origin")
    peer = request.scope.get("client")
    if not door.settings.sessions.may_try(str(peer[0]) if peer else ""):
        raise TooMany("too many attempts to sign in from your address: wait a minute, or use `cotenant open`", 5.0)
    wanted = await _of_token(request, body.token) if body.token else door.settings.sessions.redeem(body.code)
    if wanted is None:
        text = "this token is not good" if body.token else "this link was used already, or is more than a minute old"
        return answer(encode({"error": text}), 401)
    cookie, session = door.settings.sessions.begin(wanted)
    request.scope["cotenant.caller"] = session.caller
    response = answer(encode(_told(door.tenants.known(session.caller), session.until_s)))
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    age_s = ceil(session.until_s - door.settings.sessions.now_s())
    response.headers["Set-Cookie"] = (
        f"{cookie_name(request.scope)}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age_s}{secure}"
    )
    return response


async def _of_token(request: Request, token: str) -> BrowserSession | None:
    """A session for who has this token, until that ends."""
    door = door_of(request)
    caller = await who(door, request.scope, token)
    sign_on = door.settings.sign_on
    until_s = sign_on.ends_s(token) if caller is not None and sign_on is not None and sign_on.is_one(token) else inf
    return None if caller is None else BrowserSession(caller, until_s=until_s)


@router.get(SESSION, responses=s.answers(s.WhoAmI), tags=["session"], openapi_extra={"security": []})
async def signed_in(request: Request) -> Response:
    """Who you are, by cookie or token, and what you may; nobody where you show neither."""
    caller = caller_of(request)
    if caller is NOBODY:
        return answer(encode({"user": None}))
    found = door_of(request).settings.sessions.find(by_cookie(request.scope))
    return answer(encode({"user": _told(caller, found.until_s if found else None)}))


@router.delete(SESSION, status_code=204, responses=s.answers(None, status=204), tags=["session"])
async def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    door_of(request).settings.sessions.end(cookie_of(request.scope))
    gone = f"{cookie_name(request.scope)}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"
    return Response(status_code=204, headers={"Set-Cookie": gone})


@router.post(LINK, status_code=201, responses=s.answers(s.SignInCode, status=201), tags=["session"])
async def link(request: Request) -> Response:
    """A code that signs a browser in as you, once and within a minute."""
    door, caller = door_of(request), caller_of(request)
    if by_cookie(request.scope):
        raise Forbidden("a browser cannot make links: sign in with a token, or run `cotenant open`")
    secret = bearer(request.scope)
    made = await _of_token(request, secret) if secret else None
    uid = request.scope.get("state", {}).get("cotenant.uid")
    session = made or BrowserSession(caller, -1 if uid is None else uid)
    return answer(encode({"code": door.settings.sessions.new_code(session), "lasts_s": CODE_S}), 201)


def _told(caller: Caller, until_s: float | None) -> dict[str, Any]:
    return {
        "name": caller.name, "role": caller.role, "tenant": caller.tenant, "scopes": caller.scopes,
        "administers": sorted(caller.administers), "until_s": until_s, "version": __version__,
    }  # fmt: skip
