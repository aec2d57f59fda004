"""Routes of the tree of tenants."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import admin_of, answer, caller_of, door_of, encode
from cotenant.api.limits import check_text, one_line

router = APIRouter(prefix="/v1/tenants", tags=["tenants"])


async def _changed(request: Request, act: Callable[[], tuple[str, list[str]]], status: int = 200) -> Response:
    """Do something to the tree: all of it as it is then, with what was done, which the audit log has too."""
    door, caller = door_of(request), caller_of(request)

    def work() -> bytes:
        done, unmatched = act()
        request.scope["cotenant.note"] = one_line(done)
        return encode({**door.tenants.tenants(caller), "done": done, "unmatched": unmatched})

    return answer(await door.call(work), status)


@router.get("", responses=s.answers(s.TenantsShown))
async def tenants(request: Request) -> Response:
    """All tenants, what each holds now, and what is said of nodes."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.tenants.tenants(caller))))


@router.post("", status_code=201, responses=s.answers(s.TenantsShown, 404, 409, status=201))
async def add(request: Request, body: s.NewTenant) -> Response:
    """A new tenant (admin, or an administrator of one above it)."""
    door, caller = door_of(request), caller_of(request)
    check_text(body.model_dump(), "tenant")
    return await _changed(request, lambda: (door.tenants.add(caller, body.name, body.parent, body.fields), []), 201)


@router.put("", responses=s.answers(s.TenantsShown, 409))
async def replace(request: Request, body: s.ClusterFile) -> Response:
    """The tenants of a cluster file, and what it says of nodes (admin)."""
    door, caller = door_of(request), admin_of(request)
    given = body.model_dump()
    check_text(given, "cluster file")
    groups = given.pop("groups")
    return await _changed(request, lambda: door.tenants.replace(caller, given, groups))


@router.patch("", responses=s.answers(s.TenantsShown, 409))
async def share(request: Request, body: s.FairShare) -> Response:
    """How past use counts, and how soon GPUs come back (admin)."""
    door, caller = door_of(request), admin_of(request)
    given = body.model_dump(exclude_unset=True)
    return await _changed(request, lambda: (door.tenants.share(caller, given), []))


@router.patch("/{name}", responses=s.answers(s.TenantsShown, 404, 409))
async def change(request: Request, name: s.TenantName, body: s.TenantChange) -> Response:
    """Other fields of a tenant (admin, or an administrator of one above it)."""
    door, caller = door_of(request), caller_of(request)
    check_text(body.fields, "tenant")
    return await _changed(request, lambda: (door.tenants.set(caller, name, body.fields), []))


@router.delete("/{name}", responses=s.answers(s.TenantsShown, 404, 409))
async def remove(request: Request, name: s.TenantName) -> Response:
    """Take a tenant away that has neither children nor unfinished jobs."""
    door, caller = door_of(request), caller_of(request)
    return await _changed(request, lambda: (door.tenants.remove(caller, name), []))
