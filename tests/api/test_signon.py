"""Sign-on with a real provider on loopback: from the browser's form to a caller with tenant and role."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from doors_kit import served
from fake_service import FakeService

from cotenant.api.signon import Provider, RoleRule, SignOn, read_provider
from cotenant.client import Client, Denied
from cotenant.client import login as signing
from cotenant.client.home import Login, keep_login, read_login
from cotenant.core.errors import InputError
from cotenant.service.facade import Caller, Role

jwt = pytest.importorskip("jwt")
mock = pytest.importorskip("oidc_provider_mock")

USERS = {
    "ann": {"preferred_username": "ann", "groups": ["ml"], "team": "vision"},
    "olga": {"email": "olga@example.org", "groups": ["ops", "ml"]},
    "eve": {"preferred_username": "eve", "groups": ["sales"]},
}
RULES = "map=ops:admin;ml:user"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    users = [mock.User(sub=name, claims=claims) for name, claims in USERS.items()]
    with mock.run_server_in_thread(user_claims=users, access_token_max_age=timedelta(minutes=5)) as server:
        yield f"http://localhost:{server.server_port}"


def _provider(issuer: str) -> Provider:
    return read_provider(f"issuer={issuer},client=cotenant,secret=s,role_claim=groups,tenant_claim=team,{RULES}")


def _browser(name: str) -> Any:
    """Fills in the provider's form and follows it back, as a person's browser would."""

    def show(address: str) -> None:
        def go() -> None:
            httpx.post(address, data={"sub": name}, follow_redirects=True)

        threading.Thread(target=go, daemon=True).start()

    return show


def _sign_on(issuer: str, name: str) -> Login:
    return signing.by_browser(signing.Issuer.find(issuer, "cotenant", "openid profile email", "s"), _browser(name))


def test_people_sign_on_and_are_who_the_provider_says(
    issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, service = tmp_path / "home", FakeService(tmp_path)
    home.mkdir()
    for name in ("COTENANT_URL", "COTENANT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "anns"))
    with served(home, service, provider=_provider(issuer)):
        url = f"unix:{home / 'api.sock'}"
        with Client(url) as client:
            told = client.sign_on()
        got = signing.by_browser(signing.Issuer.find(**told), _browser("ann"))
        keep_login(tmp_path / "anns", replace(got, url=url))
        with Client() as ann:
            assert ann.url == url
            ann.submit([{"run": "true"}])
            assert [(job.user, job.tenant) for job in ann.jobs()] == [("ann", "vision")]
            with pytest.raises(Denied, match="role admin"):
                ann.tokens()
        with Client(url, _sign_on(issuer, "olga").token) as olga:
            assert olga.tokens()
        with (
            Client(url, _sign_on(issuer, "eve").token) as eve,
            pytest.raises(Denied, match="sign-on is over"),
        ):
            eve.jobs()
        broken = got.token[:-8] + ("A" * 8 if not got.token.endswith("A" * 8) else "B" * 8)
        with Client(url, broken) as forged, pytest.raises(Denied, match="sign-on is over"):
            forged.jobs()
        with pytest.raises(Denied, match="sign-on token is not sent"):
            Client("http://127.0.0.1:8470", got.token)


@pytest.mark.parametrize("given", [{"id_token": "n.e.w", "expires_in": 600}, {"access_token": "opaque"}])
def test_a_login_is_renewed_when_its_time_is_nearly_over(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path))
    for name in ("COTENANT_URL", "COTENANT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    asked: list[str] = []

    def ask(method: str, url: str, **more: Any) -> Any:
        asked.append(url)
        return given if method == "POST" else {"token_endpoint": "t"}

    monkeypatch.setattr(signing, "_ask", ask)
    old = Login("unix:/run/x.sock", "o.l.d", "", "again", "https://idp", "c", "", time.time() + 5)
    keep_login(tmp_path, old)
    with Client():
        kept = read_login(tmp_path)
    with Client():
        assert asked == ["https://idp/.well-known/openid-configuration", "t"]  # not at every call
    assert kept.token == given.get("id_token", "o.l.d")
    assert (kept.url, oct((tmp_path / "login.json").stat().st_mode)[-3:]) == (old.url, "600")


@dataclass
class Signer:
    """A provider in memory, to sign what a real one would not."""

    algorithm: str = "RS256"

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec, rsa

        rs = self.algorithm == "RS256"
        self.key: Any = rsa.generate_private_key(65537, 2048) if rs else ec.generate_private_key(ec.SECP256R1())
        kind = jwt.algorithms.RSAAlgorithm if rs else jwt.algorithms.ECAlgorithm
        self.public = {**kind.to_jwk(self.key.public_key(), as_dict=True), "kid": "k1", "use": "sig"}
        self.fetched = 0

    def get(self, url: str) -> Any:
        self.fetched += 1
        return {"jwks_uri": "keys"} if url.endswith("configuration") else {"keys": [self.public]}

    def sign(self, kid: str = "k1", **changed: Any) -> str:
        now = int(time.time())
        claims = {"iss": "https://idp", "aud": "me", "sub": "s", "email": "a@b", "exp": now + 60, "roles": "dev"}
        return str(jwt.encode({**claims, **changed}, self.key, self.algorithm, headers={"kid": kid}))


PROVIDER = Provider("https://idp", "me", (RoleRule("dev", Role.USER, "t"), RoleRule("*", Role.VIEWER, "")))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_good_tokens_are_mapped_and_others_refused(algorithm: str) -> None:
    signer = Signer(algorithm)
    sign_on = SignOn(PROVIDER, signer.get)

    def caller(token: str) -> Caller | None:
        found = sign_on.check(token)
        return None if found is None else found[1]

    assert caller(signer.sign()) == Caller("a@b", Role.USER, "t")
    assert caller(signer.sign(roles=["x"], tenant="u")) == Caller("a@b", Role.VIEWER, "u")
    past = int(time.time()) - 3600
    for wrong in ({"iss": "https://other"}, {"aud": "other"}, {"exp": past}, {"exp": None}, {"nbf": past + 7200}):
        assert caller(signer.sign(**wrong)) is None, wrong
    fetched = signer.fetched
    assert [caller(signer.sign(kid=f"unknown-{number}")) for number in range(20)] == [None] * 20
    assert signer.fetched == fetched  # strangers do not make us ask the provider
    assert caller(Signer(algorithm).sign()) is None
    none = jwt.encode({"iss": "https://idp", "aud": "me", "sub": "s", "exp": past + 7200}, None, "none")
    assert caller(none) is None


def test_a_code_typed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    waits: list[float] = []
    answers: list[Any] = [
        {"device_code": "d", "user_code": "WXYZ", "verification_uri": "https://idp/device", "interval": 1},
        Denied("the sign-on provider refused: authorization_pending"),
        Denied("the sign-on provider refused: slow_down"),
        {"id_token": "a.b.c", "expires_in": 60},
    ]

    def ask(method: str, url: str, **more: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(signing, "_ask", ask)
    described = {"device_authorization_endpoint": "d", "token_endpoint": "t"}
    got = signing.by_device(signing.Issuer("i", "c", "openid", "", described), told.append, waits.append)
    assert (got.token, told, waits) == ("a.b.c", ["open https://idp/device and type WXYZ"], [1.0, 1.0, 6.0])


@pytest.mark.parametrize(
    "text",
    ["issuer=https://x", "issuer=http://far,client=c,map=*:user", "issuer=https://x,client=c,map=a:king", "isuer=x"],
)
def test_bad_options_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--oidc"):
        read_provider(text)
