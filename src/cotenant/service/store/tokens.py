"""Tokens: random secrets of which only a digest is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from cotenant.core.errors import InputError
from cotenant.service.facade import Caller, Role, TokenInfo


def new_token(name: str, role: Role, tenant: str) -> tuple[dict[str, Any], str]:
    """What to journal for a new token, and its secret."""
    if role == Role.USER and not tenant:
        raise InputError("a token with role user needs a tenant: --tenant NAME")
    secret = "ct_" + secrets.token_urlsafe(32)
    data = {"name": name, "role": str(role), "tenant": tenant, "digest": digest(secret)}
    return {"id": secrets.token_hex(6), **data}, secret


def token_info(row: Mapping[str, Any]) -> TokenInfo:
    """One token without its secret."""
    return TokenInfo(row["id"], row["name"], Role(row["role"]), row["tenant"], row["created_s"], row["revoked"])


def whose(rows: Iterable[Mapping[str, Any]], secret: str) -> Caller | None:
    """Compare with every token in constant time."""
    given, found = digest(secret), None
    for row in rows:
        if hmac.compare_digest(given, row["digest"]) and not row["revoked"]:
            found = Caller(row["name"], Role(row["role"]), row["tenant"])
    return found


def digest(secret: str) -> str:
    """Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
