"""What-if questions. One that takes long is answered with how far it has come; ask again for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, cast
from uuid import uuid4

from fastapi import APIRouter, Path, Request, Response

from cotenant.api import schemas as s
from cotenant.api.door import Door, answer, caller_of, door_of, encode
from cotenant.api.jobs import own_jobs
from cotenant.api.limits import check_text
from cotenant.service.facade import Caller, Conflict, NotFound, WhatIfWatch
from cotenant.service.pictures.trial import TrialAsked

MOST_OF_ONE = 2  # under way of one caller
MOST_KEPT = 32
FIRST_WAIT_S = 1.0  # most are answered by then

router = APIRouter()


@dataclass(slots=True)
class Question:
    """One what-if under way, or its answer until others need the room."""

    caller: Caller
    work: asyncio.Task[bytes]
    watch: WhatIfWatch
    id: str = field(default_factory=lambda: uuid4().hex)

    async def respond(self, wait_s: float | None) -> Response:
        """The answer, if it is there within so many seconds (None: however long); else 202 and how far it has come."""
        await asyncio.wait([self.work], timeout=wait_s)
        if self.work.done():
            return answer(self.work.result())
        return answer(encode({"id": self.id, "progress": self.watch.as_dict()}), 202)


class Questions:
    """Those of one application, oldest first."""

    def __init__(self) -> None:
        self._kept: dict[str, Question] = {}

    def ask(self, door: Door, caller: Caller, answer_to: Callable[[WhatIfWatch], dict[str, Any]]) -> Question:
        """Begin with one."""
        if sum(one.caller == caller and not one.work.done() for one in self._kept.values()) >= MOST_OF_ONE:
            raise Conflict(f"{MOST_OF_ONE} what-ifs of yours are under way: wait for one of them")
        watch = WhatIfWatch()
        work = asyncio.create_task(door.call_slow(lambda: encode(answer_to(watch))))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # told to whoever asks again
        made = Question(caller, work, watch)
        self._kept[made.id] = made
        for old in [key for key, one in self._kept.items() if one.work.done()][: max(len(self._kept) - MOST_KEPT, 0)]:
            del self._kept[old]
        return made

    def find(self, caller: Caller, question: str) -> Question:
        """One of the caller's."""
        found = self._kept.get(question)
        if found is None or found.caller != caller:
            raise NotFound(f"no what-if '{question}': its answer is kept for a while only; ask again")
        return found


def questions_of(request: Request) -> Questions:
    """Those of the application that a request came to."""
    return cast(Questions, request.app.state.questions)


_LATER: dict[int | str, dict[str, Any]] = {
    202: {"model": s.WhatIfProgress, "description": "How far it has come: ask again at /v1/whatif/{id}."}
}


@router.post("/v1/whatif", responses={**s.answers(dict[str, Any], 409), **_LATER}, tags=["cluster"])
async def whatif(request: Request, body: s.WhatIf) -> Response:
    """Play the live state forward: per job the expected finish now and under each policy.

    With `later` an answer that takes long is 202 and how far it has come.
    """
    door, caller = door_of(request), caller_of(request)
    policies = list(dict.fromkeys(body.policies))
    made = questions_of(request).ask(door, caller, lambda watch: door.desk.whatif(caller, policies, watch))
    return await made.respond(FIRST_WAIT_S if body.later else None)


@router.post("/v1/trials", responses={**s.answers(s.TrialAnswer, 404, 409), **_LATER}, tags=["cluster"])
async def trial(request: Request, body: s.TrialQuestion) -> Response:
    """What would be with other policies, jobs that are not submitted, more nodes, other tenants: beside how it is now.

    When each job would start and end, with intervals, and what would be said of deadlines. For a 202 see /v1/whatif.
    """
    door, caller = door_of(request), caller_of(request)
    check_text(body.tenants, "tenants")
    asked = TrialAsked(
        tuple(dict.fromkeys(body.policies)), tuple(own_jobs(caller, body.jobs)), body.nodes, body.like, body.tenants
    )
    made = questions_of(request).ask(door, caller, lambda watch: door.pictures.trial(caller, asked, watch))
    return await made.respond(FIRST_WAIT_S if body.later else None)


@router.get("/v1/whatif/{question}", responses={**s.answers(dict[str, Any], 404, 409), **_LATER}, tags=["cluster"])
async def whatif_answer(
    request: Request, question: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")], wait: s.Wait = 0.0
) -> Response:
    """The answer to a what-if, or how far it has come; `wait` so many seconds for it."""
    return await questions_of(request).find(caller_of(request), question).respond(wait)
