"""Signing on at a provider: by a code that one types elsewhere (RFC 8628), or by a browser on this machine (RFC 8252).

What is kept is the ID token, which names the person and is signed for this client, and what renews it.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cotenant.client.errors import Denied, Unreachable
from cotenant.client.home import Login
from cotenant.client.slim import httpx

_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Issuer:
    """A provider, as it describes itself, and the client that we are there."""

    issuer: str
    client: str
    scope: str
    secret: str
    described: dict[str, Any]

    @classmethod
    def find(cls, issuer: str, client: str, scope: str = "", secret: str = "") -> Issuer:
        """Ask the provider where its endpoints are."""
        return cls(issuer, client, scope, secret, _ask("GET", f"{issuer}/.well-known/openid-configuration"))

    def exchange(self, **what: str) -> Login:
        """Tokens for a code, or for a refresh token."""
        known: dict[str, Any] = {"auth": (self.client, self.secret)} if self.secret else {}
        given = _ask("POST", self.described["token_endpoint"], data={"client_id": self.client, **what}, **known)
        if "id_token" not in given:
            raise Denied(f"{self.issuer} gave no ID token: does the client '{self.client}' have the scope openid?")
        refresh, lasts_s = str(given.get("refresh_token", "")), float(given.get("expires_in", 3600))
        ends_s = time.time() + lasts_s
        return Login("", given["id_token"], "", refresh, self.issuer, self.client, self.secret, ends_s)


def by_device(issuer: Issuer, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> Login:
    """Show an address and a code; wait until somebody has typed it there."""
    where = issuer.described.get("device_authorization_endpoint")
    if not where:
        raise Denied(f"{issuer.issuer} has no device codes: sign on with a browser, without --device")
    asked = _ask("POST", where, data={"client_id": issuer.client, "scope": issuer.scope})
    tell(f"open {asked.get('verification_uri_complete') or asked['verification_uri']} and type {asked['user_code']}")
    pause_s, end_s = float(asked.get("interval", 5)), time.monotonic() + float(asked.get("expires_in", _WAIT_S))
    while time.monotonic() < end_s:
        sleep(pause_s)
        try:
            return issuer.exchange(grant_type=_DEVICE_GRANT, device_code=asked["device_code"])
        except Denied as error:
            if "slow_down" in str(error):
                pause_s += 5.0
            elif "authorization_pending" not in str(error):
                raise
    raise Denied("the code was not typed in time: `cotenant login` again")


def by_browser(issuer: Issuer, show: Callable[[str], None]) -> Login:
    """Send a browser to the provider and wait for it to come back with a code, which only we can use (PKCE)."""
    state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with _Return(("127.0.0.1", 0), _Page) as server:
        back = f"http://127.0.0.1:{server.server_port}/"
        query = {
            "response_type": "code", "client_id": issuer.client, "redirect_uri": back, "scope": issuer.scope,
            "state": state, "nonce": secrets.token_urlsafe(16), "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        show(f"{issuer.described['authorization_endpoint']}?{urlencode(query)}")
        server.timeout = 1.0
        end_s = time.monotonic() + _WAIT_S
        while not server.found and time.monotonic() < end_s:
            server.handle_request()
    if not server.found:
        raise Denied("nobody signed on in time: `cotenant login` again")
    if server.found.get("state") != state or "code" not in server.found:
        raise Denied(f"the provider refused: {server.found.get('error_description') or server.found.get('error')}")
    code = server.found["code"]
    return issuer.exchange(grant_type="authorization_code", code=code, redirect_uri=back, code_verifier=verifier)


def renewed(login: Login) -> Login:
    """A new one from its refresh token; the old one where the provider gives none (it need not)."""
    issuer = Issuer.find(login.issuer, login.client, secret=login.secret)
    try:
        new = issuer.exchange(grant_type="refresh_token", refresh_token=login.refresh)
    except Denied:
        return replace(login, refresh="")
    return replace(new, url=login.url, pin=login.pin, refresh=new.refresh or login.refresh)


class _Return(http.server.HTTPServer):
    """Waits for the browser to come back."""

    found: dict[str, str] = {}  # noqa: RUF012


class _Page(http.server.BaseHTTPRequestHandler):
    timeout = 5.0

    def do_GET(self) -> None:
        """The browser is back."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if isinstance(self.server, _Return) and given:
            self.server.found = given
        body = b"You can close this window and go back to the terminal.\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address holds the code."""


def _ask(method: str, url: str, **more: Any) -> dict[str, Any]:
    try:
        answer = httpx.request(method, url, timeout=15.0, **more)
        given = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise Unreachable(f"the sign-on provider does not answer at {url}: {error}") from None
    if answer.status_code >= 400 or not isinstance(given, dict):
        why = given.get("error_description") if isinstance(given, dict) else ""
        code = given.get("error", answer.status_code) if isinstance(given, dict) else answer.status_code
        raise Denied(f"the sign-on provider refused: {code}" + (f": {why}" if why else ""))
    return given
