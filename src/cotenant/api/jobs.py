"""Routes of jobs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from cotenant.api import schemas as s
from cotenant.api import streams
from cotenant.api.door import Forbidden, answer, caller_of, door_of, encode, shown
from cotenant.api.limits import one_line, read_jobs
from cotenant.api.logs import check_offset
from cotenant.api.news import PageAsked
from cotenant.api.several import checked_changes
from cotenant.core.errors import CotenantError
from cotenant.core.jobspec import JobSpec
from cotenant.service.facade import Caller, EventInfo, Role, Which

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


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
        specs, asked = own_jobs(caller, body.jobs), hashlib.sha256(raw).hexdigest()
        ids = door.desk.submit(caller, specs, idempotency_key, asked)
        request.scope["cotenant.note"] = one_line(f"jobs {' '.join(mine[0] for mine in ids)}")
        return encode({"ids": ids})

    return answer(await door.call(act), 201)


def own_jobs(caller: Caller, jobs: list[dict[str, Any]]) -> list[JobSpec]:
    """Job mappings as specs, if they are for a tenant for which the caller may submit."""
    specs = read_jobs(jobs)
    for spec in specs:
        if caller.role is not Role.ADMIN and spec.tenant not in ("", caller.tenant):
            raise Forbidden(f"this token submits for tenant '{caller.tenant}', not for '{spec.tenant}'")
    return specs


@router.post("/check", responses=s.answers(s.CheckedJobs, 404, 409))
async def check(request: Request, body: s.Draft) -> Response:
    """Whether jobs would be taken, and with which defaults, else `error`; nothing is submitted."""
    door, caller = door_of(request), caller_of(request)

    def act() -> bytes:
        try:
            specs = door.pictures.check(caller, own_jobs(caller, body.jobs))
        except (CotenantError, Forbidden) as error:
            return encode({"jobs": [], "error": one_line(str(error))})
        return encode({"jobs": [spec.as_dict() for spec in specs], "error": ""})

    return answer(await door.call(act))


@router.get("", responses=s.answers(s.Jobs, 404))
async def jobs(
    request: Request,
    ids: s.Ids_ = [],  # noqa: B006
    state: s.States = [],  # noqa: B006
    name: s.Names = [],  # noqa: B006
    user: s.Users = [],  # noqa: B006
    tenant: s.Tenants = [],  # noqa: B006
    limit: s.Limit = 1000,
    skip: s.Skip = None,
) -> Response:
    """Jobs that you may see, newest last; without spec and attempts. Of too many: those that run, then the next."""
    door, caller = door_of(request), caller_of(request)
    which = Which(tuple(ids), tuple(str(item) for item in state), tuple(name), tuple(user), tuple(tenant))

    def act() -> bytes:
        found = door.desk.jobs(caller, which, limit=limit, skip=skip)
        return encode({"jobs": [shown(job, caller) for job in found], "left_out": found.left_out})

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
    """What the policy has told of its deadline, and what would help; `unanswered` before its first decision."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.desk.deadline(caller, job))))


@router.get("/{job}/events", responses=s.answers(s.Events, 404))
async def events(
    request: Request,
    job: s.JobId,
    after: s.After = 0,
    limit: s.Limit = 1000,
    wait: s.Wait = 0.0,
    newest: s.Newest = s.Flag.FALSE,
) -> Response:
    """History of one job."""
    return await list_events(request, job, after, limit, wait, newest)


async def list_events(request: Request, job: str, after: int, limit: int, wait: float, newest: s.Flag) -> Response:
    """Events, and where to go on."""
    door, caller = door_of(request), caller_of(request)
    if newest is s.Flag.TRUE:
        found = await door.call(door.desk.events, caller, job, max(after, 0), limit, True)
        return answer(_listed(found, caller, found[-1].seq if found else max(after, 0)))
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
    tail: s.Tail = None,
    since: s.Since = None,
    timestamps: s.Flag = s.Flag.FALSE,
    follow: s.Flag = s.Flag.FALSE,
    encoding: s.Encoding = s.Encoding.TEXT,
    last_event_id: Annotated[str, Header(pattern=r"^[0-9a-f.-]{0,48}$", description="Follow on from here.")] = "",
) -> Response:
    """Output of a job. An offset stays right when the file is rotated or moved and when the job starts anew."""
    door, caller = door_of(request), caller_of(request)
    asked = streams.AskedLog(door.desk, caller, job, stream.names, attempt, timestamps is s.Flag.TRUE)
    start = (last_event_id if follow is s.Flag.TRUE else "") or offset
    check_offset(start)
    if start == "0":
        start = await door.call(asked.start, tail, since)
    if follow is s.Flag.TRUE:
        await door.call(asked.info)
        exact = encoding is s.Encoding.BASE64
        return streams.respond(request, lambda listener: streams.LogFollower(listener, asked, start, exact).run())
    chunk = await door.call(lambda: asked.read(asked.info(), start, limit))
    headers = {"X-Offset-Next": chunk.cursor, "Cache-Control": "no-store"}
    if chunk.gap:
        headers["X-Log-Gap"] = "true"
    return Response(chunk.data, headers=headers, media_type="application/octet-stream")


@router.post("/{job}/cancel", responses=s.answers(s.Job, 404, 409))
async def cancel(request: Request, job: s.JobId, force: s.Flag = s.Flag.FALSE) -> Response:
    """Ask a job to end for good; with force by SIGKILL, at once."""
    await door_of(request).call(door_of(request).desk.cancel, caller_of(request), job, force is s.Flag.TRUE)
    return await _one(request, job)


@router.post("/{job}/requeue", responses=s.answers(s.Job, 404, 409))
async def requeue(request: Request, job: s.JobId) -> Response:
    """Stop a job and let it wait again."""
    await door_of(request).call(door_of(request).desk.requeue, caller_of(request), job)
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
    changes = checked_changes(body)
    await door_of(request).call(door_of(request).desk.set, caller_of(request), job, changes)
    return await _one(request, job)
