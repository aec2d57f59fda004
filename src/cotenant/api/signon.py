"""Sign-on by an OpenID Connect provider: its signed tokens say who somebody is, a map says what he may.

Keys are fetched from the provider when a token names one that is not known, at most twice a minute. A token that was
found good is remembered until it ends, for a minute at most.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anyio import CapacityLimiter, to_thread

from cotenant.core.errors import InputError, unknown
from cotenant.core.proof import digest
from cotenant.service.facade import Caller, Role, Unavailable

ALGORITHMS = ("RS256", "ES256")
_REFETCH_S = 30.0
_REMEMBER_S = 60.0
_MOST_REMEMBERED = 2000
_LEEWAY_S = 30.0
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NAMES = ("preferred_username", "email", "sub")


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Who has this value among his roles gets this role, and this tenant if one is named. `*`: anybody."""

    value: str
    role: Role
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """An issuer of tokens, and what is made of them.

    `client`: the id under which it knows Cotenant, and the audience of its tokens unless `audience` says otherwise.
    The first of `rules` that fits somebody's `role_claim` gives his role; his tenant is the rule's, else what
    `tenant_claim` says. `secret`: for providers that want one of programs too; whoever signs on learns it.
    """

    issuer: str
    client: str
    rules: tuple[RoleRule, ...]
    tenant_claim: str = "tenant"
    role_claim: str = "roles"
    user_claim: str = ""
    audience: str = ""
    scope: str = "openid profile email"
    secret: str = ""


def read_provider(text: str) -> Provider:
    """`issuer=URL,client=ID,role_claim=groups,tenant_claim=team,map=ops:admin;ml:user:team-a;*:viewer`."""
    given: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        given[name.strip()] = value.strip()
    known = ("issuer", "client", "map", "tenant_claim", "role_claim", "user_claim", "audience", "scope", "secret")
    for name in given:
        if name not in known:
            raise unknown("--oidc", name, known)
    for name in ("issuer", "client", "map"):
        if not given.get(name):
            raise InputError(f"--oidc needs {name}=...: issuer=URL,client=ID,map=VALUE:ROLE[:TENANT];...")
    if not given["issuer"].startswith(("https://", "http://localhost", "http://127.0.0.1")):
        raise InputError(f"--oidc issuer={given['issuer']}: must begin with https://")
    given["issuer"] = given["issuer"].rstrip("/")
    rules = tuple(_rule(part) for part in given.pop("map").split(";") if part)
    return Provider(rules=rules, **given)


def _rule(text: str) -> RoleRule:
    value, _, rest = text.partition(":")
    role, _, tenant = rest.partition(":")
    if not value or role not in list(Role):
        raise InputError(f"--oidc map={text}: write VALUE:ROLE[:TENANT], with role admin, user or viewer")
    return RoleRule(value, Role(role), tenant)


class SignOn:
    """Callers by a provider's tokens. `get` fetches JSON from a URL."""

    def __init__(self, provider: Provider, get: Callable[[str], Any] | None = None) -> None:
        try:
            import jwt
        except ImportError:
            raise InputError("--oidc needs PyJWT with cryptography: pip install 'cotenant[oidc]'") from None
        self.provider, self._jwt, self._get = provider, jwt, get or _get
        self._keys: dict[str, Any] = {}
        self._fetched_s = float("-inf")
        self._threads = CapacityLimiter(4)
        self._known: dict[str, tuple[float, Caller]] = {}

    @staticmethod
    def is_one(secret: str) -> bool:
        """Whether a secret looks like a provider's token; ours hold no dot."""
        return secret.count(".") == 2

    async def caller(self, token: str) -> Caller | None:
        """Who signed on with this token; None if it is not good."""
        name, now_s = digest(token), time.time()
        until_s, caller = self._known.get(name, (0.0, None))
        if caller is not None and now_s < until_s:
            return caller
        found = await to_thread.run_sync(self.check, token, limiter=self._threads)
        if found is None:
            self._known.pop(name, None)
            return None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        ends_s, caller = found
        self._known[name] = min(ends_s, now_s + _REMEMBER_S), caller
        return caller

    def ends_s(self, token: str) -> float:
        """When a token that was found good ends."""
        return float(self._jwt.decode(token, options={"verify_signature": False})["exp"])

    def check(self, token: str) -> tuple[float, Caller] | None:
        """When a token ends, and whose it is; None if signature, issuer, audience or time are wrong."""
        jwt = self._jwt
        try:
            key = self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                return None
            claims = jwt.decode(
                token, key.key, algorithms=list(ALGORITHMS), issuer=self.provider.issuer,
                audience=self.provider.audience or self.provider.client, leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        caller = self._mapped(claims)
        return None if caller is None else (float(claims["exp"]), caller)

    def _key(self, kid: str) -> Any:
        """The key of this id; one that is not known is looked for at the provider, but not for every stranger."""
        if kid not in self._keys and time.monotonic() - self._fetched_s > _REFETCH_S:
            self._fetched_s = time.monotonic()
            try:
                found = self._get(f"{self.provider.issuer}/.well-known/openid-configuration")
                keys = self._get(str(found["jwks_uri"]))["keys"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise Unavailable(f"the sign-on provider {self.provider.issuer} does not answer: {error}") from None
            self._keys = dict(self._readable(keys))
        return self._keys.get(kid) or (next(iter(self._keys.values())) if not kid and len(self._keys) == 1 else None)

    def _readable(self, keys: list[Mapping[str, Any]]) -> Any:
        for one in keys:
            try:
                if one.get("use", "sig") == "sig":
                    yield str(one.get("kid", "")), self._jwt.PyJWK(dict(one))
            except self._jwt.PyJWTError:
                continue  # of a kind that is not used here

    def _mapped(self, claims: Mapping[str, Any]) -> Caller | None:
        roles = _texts(claims.get(self.provider.role_claim))
        rule = next((one for one in self.provider.rules if one.value == "*" or one.value in roles), None)
        if rule is None:
            return None
        names = (self.provider.user_claim,) if self.provider.user_claim else _NAMES
        name = next((str(claims[one]) for one in names if claims.get(one)), "")
        tenant = "" if rule.role is Role.ADMIN else rule.tenant
        if not tenant and rule.role is not Role.ADMIN:
            tenant = next(iter(_texts(claims.get(self.provider.tenant_claim))), "")
        if rule.role is Role.USER and not _LABEL.fullmatch(tenant):
            return None
        if not name or not name.isprintable() or len(name) > 128:
            return None
        return Caller(name, rule.role, tenant, token=f"oidc:{claims['sub']}"[:80])


def _texts(value: Any) -> list[str]:
    """A claim that is one text, or several."""
    if isinstance(value, str):
        return value.split()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _get(url: str) -> Any:
    import httpx

    try:
        answer = httpx.get(url, timeout=5.0)
        answer.raise_for_status()
        return answer.json()
    except httpx.HTTPError as error:
        raise OSError(f"{url}: {error}") from None
