"""Routes of who has used what."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import answer, caller_of, door_of, encode

router = APIRouter()

_By = Annotated[str, Query(pattern=r"^[a-z,]{0,64}$", description="Of tenant, user, day, model, state; with commas.")]
_From = Annotated[float | None, Query(alias="from", ge=0, le=1e11, description="Unix seconds; without: all.")]
_To = Annotated[float | None, Query(alias="to", ge=0, le=1e11, description="Unix seconds; without: now.")]
_Tenant = Annotated[
    str, Query(pattern=r"^[^\x00-\x1f\x7f]{0,200}$", description="Only this tenant and those below it.")
]


@router.get("/v1/usage", responses=s.answers(dict[str, Any]), tags=["accounts"])
async def usage(request: Request, by: _By = "tenant", from_s: _From = None, to_s: _To = None) -> Response:
    """GPU-hours, jobs, waits, failures and lost work between two moments."""
    door, caller = door_of(request), caller_of(request)
    names = tuple(filter(None, by.split(",")))
    return answer(await door.call(lambda: encode(door.accounts.usage(caller, names, from_s, to_s))))


@router.get("/v1/share", responses=s.answers(dict[str, Any], 404), tags=["accounts"])
async def share(request: Request, tenant: _Tenant = "") -> Response:
    """How tenants stand: guaranteed, entitled, used, borrowed from whom, lent to whom, and the arithmetic in words."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.accounts.share(caller, tenant))))
