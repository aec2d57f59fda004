"""Routes of who is who: that this is the service, where people sign on, and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import admin_of, answer, door_of, encode
from cotenant.core.proof import address_of
from cotenant.service.facade import NotFound, TooMany

router = APIRouter(tags=["doors"])

_HEX = r"^[0-9a-f]{24,64}$"


@router.get("/v1/proof", responses=s.answers(s.Proof, 404), openapi_extra={"security": []})
async def prove(
    request: Request,
    nonce: Annotated[str, Query(pattern=_HEX, description="Any random number.")],
    token: Annotated[str, Query(pattern=_HEX, description="Which token: not itself, but its hint.")],
) -> Response:
    """That this is the service that made a token, before the token is sent to it."""
    door = door_of(request)
    address = address_of(request.scope.get("server"))
    proof = door.admin.prove(token, nonce, address)
    if not proof:
        if not door.shares.strangers.take():
            raise TooMany("too many requests without a valid token")
        raise NotFound("no such token here")
    return answer(encode({"at": address, "proof": proof}))


@router.get("/v1/signon", responses=s.answers(s.SignOnAt, 404), openapi_extra={"security": []})
async def sign_on_at(request: Request) -> Response:
    """The provider at which people sign on, if there is one."""
    found = door_of(request).settings.sign_on
    if found is None:
        raise NotFound("nobody signs on here: ask an admin for a token")
    given = found.provider
    told = {"issuer": given.issuer, "client": given.client, "scope": given.scope, "secret": given.secret}
    return answer(encode(told))


@router.get("/v1/audit", responses=s.answers(s.Deeds, 404))
async def audit(
    request: Request,
    since: Annotated[float, Query(ge=0, le=1e12, description="Unix seconds.")] = 0.0,
    limit: s.Limit = 1000,
) -> Response:
    """Who did what: every request that changes something, and every such one that was refused (admin)."""
    door = door_of(request)
    admin_of(request)
    kept = door.settings.audit
    if kept is None:
        raise NotFound("no audit is kept here")
    return answer(await door.call(lambda: encode({"audit": kept.read(since, limit)})))
