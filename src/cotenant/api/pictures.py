"""Routes of the whole at a glance: overview, order of the queue, who held which GPU when, what stops have cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import answer, caller_of, door_of, encode

router = APIRouter(prefix="/v1", tags=["pictures"])

_From = Annotated[float, Query(alias="from", ge=0, le=1e11, description="Unix seconds.")]
_To = Annotated[float | None, Query(alias="to", ge=0, le=1e11, description="Unix seconds; without: now.")]


@router.get("/overview", responses=s.answers(s.Overview))
async def overview(request: Request) -> Response:
    """Jobs by state, GPUs by tenant, decisions and what needs attention."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.pictures.overview(caller))))


@router.get("/queue", responses=s.answers(s.Queue))
async def queue(request: Request) -> Response:
    """Which place waiting jobs have in the policy's order; none under a policy that plans instead of ordering."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.pictures.queue(caller))))


@router.get("/gantt", responses=s.answers(s.Gantt))
async def gantt(request: Request, from_s: _From = 0.0, to_s: _To = None) -> Response:
    """Who held which GPU when, as bars: GPU, job (by place), from, to, and 0 for work, 1 start-up, 2 suspended."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.pictures.gantt(caller, from_s, to_s))))


@router.get("/ledger", responses=s.answers(s.Ledger))
async def ledger(request: Request, from_s: _From = 0.0, to_s: _To = None) -> Response:
    """Preemptions, moves, suspensions and failures: what each cost, and who gained by it; sums by cause."""
    door, caller = door_of(request), caller_of(request)
    return answer(await door.call(lambda: encode(door.pictures.ledger(caller, from_s, to_s))))
