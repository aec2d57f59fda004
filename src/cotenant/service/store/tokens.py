"""Tokens: random secrets of which only a digest is kept."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cotenant.core.errors import InputError, unknown
from cotenant.core.proof import digest, hint, proof
from cotenant.service.facade import SCOPES, Caller, Role, TokenInfo

USE_EVERY_S = 3600.0  # how exactly the journal knows when a token was used last


def new_token(
    name: str, role: Role, tenant: str, scopes: Sequence[str] = (), expires_s: float | None = None
) -> tuple[dict[str, Any], str]:
    """What to journal for a new token, and its secret. `expires_s` is Unix seconds."""
    if role == Role.USER and not tenant:
        raise InputError("a token with role user needs a tenant: --tenant NAME")
    for scope in scopes:
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES)
    if "admin" in scopes and role != Role.ADMIN:
        raise InputError(f"scope admin needs the role admin, not {role}")
    secret = "ct_" + secrets.token_urlsafe(32)
    data: dict[str, Any] = {"name": name, "role": str(role), "tenant": tenant, "digest": digest(secret)}
    if scopes:
        data["scopes"] = sorted(set(scopes))
    if expires_s is not None:
        data["expires_s"] = expires_s
    return {"id": secrets.token_hex(6), **data}, secret


def token_info(row: Mapping[str, Any]) -> TokenInfo:
    """One token without its secret."""
    return TokenInfo(
        row["id"], row["name"], Role(row["role"]), row["tenant"], row["created_s"], row["revoked"],
        tuple(row.get("scopes", ())), row.get("expires_s"), row.get("used_s"),
    )  # fmt: skip


def valid(row: Mapping[str, Any], now_s: float) -> bool:
    """Whether a token opens anything."""
    return not row["revoked"] and now_s < row.get("expires_s", float("inf"))


class Keyring:
    """The tokens of a book, found by digest; when each was used last. Asked without the lock: it never waits.

    A digest is looked up as it is: nobody can steer the digest of a guess towards one that is kept.
    """

    def __init__(self, rows: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        self._rows = rows
        self._by_digest: dict[str, str] = {}
        self._by_hint: dict[str, str] = {}
        self._used_s: dict[str, float] = {}

    def whose(self, secret: str, now_s: float) -> Caller | None:
        """Who has this secret."""
        return self._caller(self._find(self._by_digest, digest(secret), now_s), now_s)

    def holder(self, token: str, now_s: float) -> Caller | None:
        """Whose token of this id is, while it is good."""
        row = self._rows().get(token)
        return self._caller(row, now_s) if row is not None and valid(row, now_s) else None

    def _caller(self, row: Mapping[str, Any] | None, now_s: float) -> Caller | None:
        if row is None:
            return None
        self._used_s[row["id"]] = now_s
        return Caller(row["name"], Role(row["role"]), row["tenant"], tuple(row.get("scopes", ())), row["id"])

    def prove(self, asked: str, nonce: str, address: str, now_s: float) -> str:
        """That the token of this hint is known here; '' where it is not."""
        row = self._find(self._by_hint, asked, now_s)
        return "" if row is None else proof(row["digest"], nonce, address)

    def _find(self, index: dict[str, str], key: str, now_s: float) -> Mapping[str, Any] | None:
        rows = self._rows()
        if len(self._by_digest) != len(rows):  # tokens are added and marked, never removed
            for new in list(rows.values()):
                self._by_digest[new["digest"]] = self._by_hint[hint(new["digest"])] = new["id"]
        row = rows.get(index.get(key, ""))
        return row if row is not None and valid(row, now_s) else None

    def shown(self, row: Mapping[str, Any]) -> TokenInfo:
        """One token, with its last use as far as it is known here."""
        info = token_info(row)
        return replace(info, used_s=self._used_s.get(info.id, info.used_s))

    def unsaved_uses(self) -> dict[str, float]:
        """Last uses that the journal should hear of: those more than an hour after what it knows."""
        used, rows = list(self._used_s.items()), self._rows()
        return {name: at_s for name, at_s in used if at_s - (rows[name].get("used_s") or 0.0) > USE_EVERY_S}


def last_admin(rows: Iterable[Mapping[str, Any]], token: str, now_s: float) -> bool:
    """Whether no admin's token would be left without this one."""
    admins = {row["id"] for row in rows if row["role"] == Role.ADMIN and not row.get("scopes") and valid(row, now_s)}
    return admins == {token}
