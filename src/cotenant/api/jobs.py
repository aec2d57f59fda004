"""Routes of jobs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from cotenant.api import schemas as s
from cotenant.api import streams
from cotenant.api.door import Forbidden, answer, caller_of, door_of, encode, shown
from cotenant.api.limits import one_line, read_job, read_jobs
from cotenant.api.logs import read_chunk
from cotenant.api.news import PageAsked
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, deadline_text
from cotenant.service.facade import Caller, EventInfo, Role

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_SAME = {"deadline": "deadline_s", "max_runtime": "max_runtime_s", "expected": "expected_s"}


@router.post("", status_code=201, responses=s.answers(s.Ids, 404, 409, status=201, text="Durable: these are the ids."))
async def submit(
    request: Request,
    body: s.Submission,
    idempotency_key: Annotated[
        str, Header(pattern=r"^[!-~]{0,128}$", description="The same key within a day gives the same answer.")
    ] = "",
) -> Response:
    """Submit jobs. All are taken or none."""
    door, caller, raw = door_of(request), caller_of(request), await request.body()

    def act() -> bytes:
        specs, asked = _own_jobs(caller, body.jobs), hashlib.sha256(raw).hexdigest()
        ids = door.desk.submit(caller, specs, idempotency_key, asked)
        request.scope["cotenant.note"] = one_line(f"jobs {' '.join(mine[0] for mine in ids)}")
        return encode({"ids": ids})

    return answer(await door.call(act), 201)


def _own_jobs(caller: Caller, jobs: list[dict[str, Any]]) -> list[JobSpec]:
    specs = read_jobs(jobs)
    for spec in specs:
        if caller.role is not Role.ADMIN and spec.tenant not in ("", caller.tenant):
            raise Forbidden(f"this token submits for tenant '{caller.tenant}', not for '{spec.tenant}'")
    return specs


@router.get("", responses=s.answers(s.Jobs))
async def jobs(request: Request, state: s.States = [], limit: s.Limit = 1000) -> Response:  # noqa: B006
    """Jobs that you may see, newest last; without spec and attempts."""
    door, caller = door_of(request), caller_of(request)

    def act() -> bytes:
        found = door.desk.jobs(caller, states=tuple(str(item) for item in state), limit=limit)
        return encode({"jobs": [shown(job, caller) for job in found]})

    return answer(await door.call(act))


async def _one(request: Request, job: str) -> Response:
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(shown(door.desk.job(caller, job), caller))))


@router.get("/{job}", responses=s.answers(s.Job, 404))
async def show(request: Request, job: s.JobId) -> Response:
    """One job with spec and attempts."""
    return await _one(request, job)


@router.get("/{job}/why", responses=s.answers(s.Reason, 404))
async def why(request: Request, job: s.JobId) -> Response:
    """Why a job does not run."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.desk.why(caller, job))))


@router.get("/{job}/deadline", responses=s.answers(s.Reason, 404))
async def deadline(request: Request, job: s.JobId) -> Response:
    """Whether its deadline is promised, at risk or impossible, and what would help."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.desk.deadline(caller, job))))


@router.get("/{job}/events", responses=s.answers(s.Events, 404))
async def events(
    request: Request, job: s.JobId, after: s.After = 0, limit: s.Limit = 1000, wait: s.Wait = 0.0
) -> Response:
    """History of one job."""
    return await list_events(request, job, after, limit, wait)


async def list_events(request: Request, job: str, after: int, limit: int, wait: float) -> Response:
    """Events, and where to go on."""
    door, caller = door_of(request), caller_of(request)
    ask = PageAsked(job, after, limit, _listed)
    if not wait:
        return answer((await door.news.page(caller, ask, 0.0)).content)
    with door.shares.polls.taken(caller) as seat:
        return answer((await door.news.page(caller, ask, wait, lambda: not seat.lost)).content)


def _listed(found: list[EventInfo], caller: Caller, last: int) -> bytes:
    return encode({"events": [shown(item, caller) for item in found], "next": last})


_LOGS: dict[int | str, dict[str, Any]] = {
    **s.answers(None, 404),
    200: {
        "description": "Bytes, or with follow=true events `log`, `gap` and `end`.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "text/event-stream": {"schema": s.SENT},
        },
        "headers": {
            "X-Offset-Next": {
                "description": "The offset to go on from; not with follow.",
                "schema": {"type": "string"},
            },
            "X-Log-Gap": {
                "description": "true where output after the given offset was rotated away.",
                "schema": {"type": "string"},
            },
        },
    },
}


@router.get("/{job}/logs", responses=_LOGS, response_class=Response)
async def logs(
    request: Request,
    job: s.JobId,
    stream: s.Stream = s.Stream.STDOUT,
    attempt: s.Attempt = 0,
    offset: s.Offset = "0",
    limit: s.Bytes = 1 << 20,
    follow: s.Flag = s.Flag.FALSE,
    last_event_id: Annotated[str, Header(pattern=r"^[0-9a-f-]{0,48}$", description="Follow on from here.")] = "",
) -> Response:
    """Output of a job. An offset stays right when the file is rotated."""
    door, caller = door_of(request), caller_of(request)
    log = await door.call(door.desk.open_log, caller, job, stream.value, attempt)
    if follow is s.Flag.TRUE:
        start = last_event_id or offset
        await door.call(read_chunk, None, start, 1)

        def make(listener: streams.Listener) -> Any:
            return streams.LogFollower(listener, job, stream.value, attempt, start).run()

        return streams.respond(request, make)
    chunk = await door.call(read_chunk, log, offset, limit)
    headers = {"X-Offset-Next": chunk.cursor, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if chunk.gap:
        headers["X-Log-Gap"] = "true"
    return Response(chunk.data, headers=headers, media_type="application/octet-stream")


@router.post("/{job}/cancel", responses=s.answers(s.Job, 404, 409))
async def cancel(request: Request, job: s.JobId) -> Response:
    """PageAsked a job to end for good."""
    await door_of(request).call(door_of(request).desk.cancel, caller_of(request), job)
    return await _one(request, job)


@router.post("/{job}/hold", responses=s.answers(s.Job, 404, 409))
async def hold(request: Request, job: s.JobId) -> Response:
    """Keep a job from starting; a running one is preempted and then held."""
    await door_of(request).call(door_of(request).desk.hold, caller_of(request), job)
    return await _one(request, job)


@router.post("/{job}/resume", responses=s.answers(s.Job, 404, 409))
async def resume(request: Request, job: s.JobId) -> Response:
    """Let a held job go on."""
    await door_of(request).call(door_of(request).desk.resume, caller_of(request), job)
    return await _one(request, job)


@router.patch("/{job}", responses=s.answers(s.Job, 404, 409))
async def change(request: Request, job: s.JobId, body: s.Changes) -> Response:
    """Change a job that has not ended. Times reach the service as seconds."""
    given = body.model_dump(exclude_none=True)
    if not given:
        raise InputError(f"nothing to change: give some of {', '.join(s.Changes.model_fields)}")
    spec = read_job({"run": "true", **given}, "change")
    changes = {key: getattr(spec, _SAME.get(key, key)) for key in given}
    if "deadline" in changes:
        changes["deadline"] = deadline_text(spec)
    await door_of(request).call(door_of(request).desk.set, caller_of(request), job, changes)
    return await _one(request, job)
