"""Routes of what is not one job: nodes, policy, history, tokens, backup, numbers, health."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from cotenant.api import schemas as s
from cotenant.api import streams
from cotenant.api.door import admin_of, answer, caller_of, door_of, encode
from cotenant.api.jobs import list_events
from cotenant.api.metrics import CONTENT_TYPE
from cotenant.core.errors import InputError
from cotenant.core.jobspec import read_seconds
from cotenant.service.facade import Role, Unavailable

router = APIRouter()


@router.get("/v1/nodes", responses=s.answers(s.Nodes), tags=["cluster"])
async def nodes(request: Request) -> Response:
    """All nodes."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode({"nodes": door.admin.nodes(caller)})))


@router.post("/v1/nodes/{name}/drain", responses=s.answers(s.Nodes, 404, 409), tags=["cluster"])
async def drain(request: Request, name: s.NodeName) -> Response:
    """Let nothing new start on a node (admin)."""
    await door_of(request).call(door_of(request).admin.drain, admin_of(request), name)
    return await nodes(request)


@router.delete("/v1/nodes/{name}/drain", responses=s.answers(s.Nodes, 404, 409), tags=["cluster"])
async def undrain(request: Request, name: s.NodeName) -> Response:
    """Undo a drain (admin)."""
    await door_of(request).call(door_of(request).admin.drain, admin_of(request), name, undo=True)
    return await nodes(request)


@router.get("/v1/policy", responses=s.answers(s.LivePolicy), tags=["cluster"])
async def policy(request: Request) -> Response:
    """The live policy."""
    door = door_of(request)
    return answer(await door.call(lambda: encode({"policy": door.admin.policy()})))


@router.put("/v1/policy", responses=s.answers(s.LivePolicy, 409), tags=["cluster"])
async def set_policy(request: Request, body: s.PolicyChange) -> Response:
    """Change the live policy (admin)."""
    await door_of(request).call(door_of(request).admin.set_policy, admin_of(request), body.policy)
    return await policy(request)


@router.get("/v1/policies", responses=s.answers(s.KnownPolicies), tags=["cluster"])
async def policies(request: Request) -> Response:
    """Policies that are registered, and what each does."""
    from cotenant.policies import known_policies

    def act() -> bytes:
        rows = [
            {"name": name, "description": one.description(), "preemptive": bool(one.preemptive), "source": one.source}
            for name, one in known_policies().items()
        ]
        return encode({"policies": rows})

    return answer(await door_of(request).call(act))


@router.get("/v1/forecasts/evaluation", responses=s.answers(dict[str, Any]), tags=["cluster"])
async def evaluation(request: Request) -> Response:
    """How right forecasts of jobs that have ended were."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.desk.evaluation(caller))))


@router.get("/v1/events", responses=s.answers(s.Events), tags=["events"])
async def events(
    request: Request,
    after: s.After = 0,
    limit: s.Limit = 1000,
    wait: s.Wait = 0.0,
    newest: s.Newest = s.Flag.FALSE,
) -> Response:
    """History of everything that you may see."""
    return await list_events(request, "", after, limit, wait, newest)


_STREAM: dict[int | str, dict[str, Any]] = {
    **s.answers(None, 404),
    200: {"description": "Events without end.", "content": {"text/event-stream": {"schema": s.SENT}}},
}


@router.get("/v1/events/stream", responses=_STREAM, response_class=Response, tags=["events"])
async def event_stream(
    request: Request,
    after: s.After = 0,
    job: Annotated[str, Query(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$", description="Only of this job.")] = "",
    last_event_id: Annotated[str, Header(pattern=r"^[0-9]{0,18}$", description="Go on from here.")] = "",
) -> Response:
    """History as it happens, as server-sent events; each has its number as id."""
    door, caller = door_of(request), caller_of(request)
    if job:
        await door.call(door.desk.job, caller, job)
    start = int(last_event_id) if last_event_id else after
    return streams.respond(request, lambda listener: streams.follow_events(listener, job, start))


@router.get("/v1/tokens", responses=s.answers(s.Tokens), tags=["tokens"])
async def tokens(request: Request) -> Response:
    """All tokens, without their secrets (admin)."""
    door, caller = door_of(request), admin_of(request)
    return answer(await door.call(lambda: encode({"tokens": door.admin.tokens(caller)})))


@router.post("/v1/tokens", status_code=201, responses=s.answers(s.CreatedToken, 409, status=201), tags=["tokens"])
async def create_token(request: Request, body: s.NewToken) -> Response:
    """A new token; its secret is in this answer and nowhere else (admin)."""
    door, caller = door_of(request), admin_of(request)
    if body.role is Role.USER and not body.tenant:
        raise InputError("a token of role user needs a tenant")
    if body.role is Role.ADMIN and body.tenant:
        raise InputError("an admin sees every tenant: leave the tenant out")
    name = body.name or "-".join(filter(None, (body.role.value, body.tenant)))
    lasts_s = None if body.expires is None else read_seconds(body.expires, "expires", "token")
    token, secret = await door.call(
        door.admin.create_token, caller, name, body.role, body.tenant, scopes=tuple(body.scopes), lasts_s=lasts_s
    )
    request.scope["cotenant.note"] = f"token {token.id} ({token.name})"
    return answer(encode({"token": token, "secret": secret, "fingerprint": door.settings.fingerprint}), 201)


@router.delete("/v1/tokens/{token}", status_code=204, responses=s.answers(None, 404, 409, status=204), tags=["tokens"])
async def revoke_token(request: Request, token: s.TokenId, force: s.Flag = s.Flag.FALSE) -> Response:
    """Make a token useless at once (admin); the last of an admin only by force."""
    forced = force is s.Flag.TRUE
    await door_of(request).call(door_of(request).admin.revoke_token, admin_of(request), token, force=forced)
    return Response(status_code=204)


@router.post("/v1/backup", status_code=201, responses=s.answers(s.BackupDone, 404, 409, status=201), tags=["cluster"])
async def backup(request: Request, body: s.BackupTo) -> Response:
    """A consistent copy of the journal, as a new file in the service's own folder (admin)."""
    await door_of(request).call(door_of(request).admin.backup, admin_of(request), body.path)
    return answer(encode({"path": body.path}), 201)


@router.post("/v1/shutdown", status_code=202, responses=s.answers(s.Health, 409, status=202), tags=["cluster"])
async def shutdown(request: Request, body: s.ShutDown) -> Response:
    """End the service, with its jobs or without (admin). The answer comes before the end."""
    await door_of(request).call(door_of(request).admin.shut_down, admin_of(request), body.jobs)
    return answer(encode({"status": "ending"}), 202)


_METRICS: dict[int | str, dict[str, Any]] = {
    **s.answers(None),
    200: {"description": "The text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
}


@router.get("/metrics", responses=_METRICS, response_class=Response, tags=["health"])
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    door = door_of(request)
    text = door.metrics.text(await door.call(door.admin.metrics))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


_OPEN: dict[int | str, dict[str, Any]] = {
    200: {"model": s.Health, "description": "Yes."},
    503: {"model": s.Error, "description": "Not yet, or no longer."},
}


@router.get("/healthz", responses=_OPEN, tags=["health"], openapi_extra={"security": []})
@router.head("/healthz", include_in_schema=False)
async def healthz() -> Response:
    """Whether the process answers."""
    return answer(encode({"status": "ok"}))


@router.get("/readyz", responses=_OPEN, tags=["health"], openapi_extra={"security": []})
@router.head("/readyz", include_in_schema=False)
async def readyz(request: Request) -> Response:
    """Whether it has reconciled with what really runs and takes requests; else the reason."""
    door = door_of(request)
    if trouble := await door.call_open(door.admin.trouble):
        raise Unavailable(f"not ready: {trouble}")
    return answer(encode({"status": "ready"}))
