"""Routes that act on several jobs at once, and those of maintenance and reservations."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import Forbidden, admin_of, answer, caller_of, door_of, encode, shown
from cotenant.api.limits import check_text, read_job
from cotenant.core.errors import InputError
from cotenant.core.jobspec import deadline_text
from cotenant.service.facade import EVERY, Role
from cotenant.service.node_windows import NodeWindow

router = APIRouter(prefix="/v1")

_SAME = {"deadline": "deadline_s", "max_runtime": "max_runtime_s", "expected": "expected_s"}


def checked_changes(body: s.Changes) -> dict[str, Any]:
    """What is to change, with times in seconds."""
    given = body.model_dump(exclude_none=True)
    if not given:
        raise InputError(f"nothing to change: give some of {', '.join(s.Changes.model_fields)}")
    spec = read_job({"run": "true", **given}, "change")
    changes = {key: getattr(spec, _SAME.get(key, key)) for key in given}
    if "deadline" in changes:
        changes["deadline"] = deadline_text(spec)
    return changes


@router.post("/changes/{verb}", responses=s.answers(s.Outcomes, 404, 409), tags=["jobs"])
async def change(request: Request, verb: s.Verb, body: s.ManyChanges) -> Response:
    """Cancel, hold, resume, requeue or set all jobs that are meant; what came of each, or why not."""
    door, caller, which = door_of(request), caller_of(request), body.which()
    if which == EVERY and not body.all:
        raise InputError("name jobs or give a filter; with all=true every unfinished job is meant")
    if verb is s.Verb.SET and body.changes is None:
        raise InputError("nothing to change: give changes")
    changes = checked_changes(body.changes) if body.changes is not None else None

    def act() -> bytes:
        done = door.desk.change(caller, verb.value, which, force=body.force, changes=changes)
        return encode({"jobs": [shown(item, caller) for item in done]})

    return answer(await door.call(act))


@router.post("/resubmit", status_code=201, responses=s.answers(s.Ids, 404, 409, status=201), tags=["jobs"])
async def resubmit(request: Request, body: s.Resubmission) -> Response:
    """New jobs like some old ones, but for some fields."""
    door, caller, which = door_of(request), caller_of(request), body.which()
    if not which.jobs:
        raise InputError("name the jobs to submit again")
    if body.changes:
        check_text(body.changes, "changes")
        spec = read_job({"run": "true", **body.changes}, "changes")
        if caller.role is not Role.ADMIN and spec.tenant not in ("", caller.tenant):
            raise Forbidden(f"this token submits for tenant '{caller.tenant}', not for '{spec.tenant}'")
    return answer(await door.call(lambda: encode({"ids": door.desk.resubmit(caller, which, body.changes)})), 201)


@router.get("/windows", responses=s.answers(s.Windows), tags=["cluster"])
async def windows(request: Request) -> Response:
    """Maintenance and reservations to come or in force."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode({"windows": door.admin.windows(caller)})))


@router.post("/windows", status_code=201, responses=s.answers(s.Shut, 404, 409, status=201), tags=["cluster"])
async def add_window(request: Request, body: s.NewWindow) -> Response:
    """Shut nodes for a time, to everybody or to all but one tenant or user (admin)."""
    door, caller = door_of(request), admin_of(request)
    check_text(body.model_dump(), "window")
    window = NodeWindow(
        "", body.kind, tuple(body.nodes), body.from_s, body.to_s, tenant=body.tenant, user=body.user, note=body.note
    )
    return answer(await door.call(lambda: encode(door.admin.add_window(caller, window, body.gpus))), 201)


@router.delete("/windows/{window}", status_code=204, responses=s.answers(None, 404, 409, status=204), tags=["cluster"])
async def remove_window(request: Request, window: s.WindowId) -> Response:
    """Give nodes back before their time is over (admin)."""
    await door_of(request).call(door_of(request).admin.remove_window, admin_of(request), window)
    return Response(status_code=204)
