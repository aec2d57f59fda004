"""Tokens: random secrets of which only a digest is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from cotenant.core.errors import InputError
from cotenant.service.facade import Caller, Role, TokenInfo
from cotenant.service.store.book import Book


class Tokens:
    """Reads the tokens of a book; writing goes through the journal."""

    def __init__(self, book: Book) -> None:
        self._book = book

    @staticmethod
    def new(name: str, role: Role, tenant: str) -> tuple[dict[str, Any], str]:
        """What to journal for a new token, and its secret."""
        if role == Role.USER and not tenant:
            raise InputError("a token with role user needs a tenant: --tenant NAME")
        secret = "ct_" + secrets.token_urlsafe(32)
        data = {
            "id": secrets.token_hex(6), "name": name, "role": str(role), "tenant": tenant, "digest": digest(secret),
        }  # fmt: skip
        return data, secret

    def info(self, token: str) -> TokenInfo:
        """One token without its secret."""
        row = self._book.tokens[token]
        return TokenInfo(token, row["name"], Role(row["role"]), row["tenant"], row["created_s"], row["revoked"])

    def listed(self) -> list[TokenInfo]:
        """All tokens, oldest first."""
        return [self.info(token) for token in self._book.tokens]

    def whose(self, secret: str) -> Caller | None:
        """Compare with every token in constant time."""
        given, found = digest(secret), None
        for row in list(self._book.tokens.values()):
            if hmac.compare_digest(given, row["digest"]) and not row["revoked"]:
                found = Caller(row["name"], Role(row["role"]), row["tenant"])
        return found


def digest(secret: str) -> str:
    """Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
