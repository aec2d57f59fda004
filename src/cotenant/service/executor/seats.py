"""Who may sit down now, where a plan says on which GPUs every job sits, with whom and on what terms.

A job sits down once its GPUs hold nobody but those whom the plan wants there beside it. Jobs of different turns are
never on a GPU at the same time, though the plan has both there: they change places after a quantum. Whoever has waited
longest comes first, and keeps others from GPUs that it waits for; so nobody who takes turns is passed over for ever.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.core.columns import SLOTS
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import ALONE, Terms
from cotenant.service.planner.sharing import cells
from cotenant.service.store.job import Gpus, LiveJob

Cell = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Seating:
    """The plan: GPUs, terms and memory per GPU by job, and the memory of a GPU by node (0: not known)."""

    places: Mapping[str, Gpus]
    terms: Mapping[str, Terms]
    need_gib: Mapping[str, float]
    room_gib: Mapping[str, float]

    def of(self, job: LiveJob) -> Terms:
        """What was agreed with a job."""
        return self.terms.get(job.id, ALONE)

    def apart(self, one: LiveJob, two: LiveJob) -> bool:
        """Whether two jobs take turns."""
        turns = self.of(one).turn, self.of(two).turn
        return 0 not in turns and turns[0] != turns[1]

    def wants(self, job: LiveJob, cell: Cell) -> bool:
        """Whether the plan has a job on a GPU."""
        node, index = cell
        return any(name == node and index in indexes for name, indexes in self.places.get(job.id, ()))


@dataclass(slots=True)
class _Room:
    """Who is on each GPU, and for whom it is kept."""

    users: dict[Cell, list[LiveJob]] = field(default_factory=dict)
    kept: dict[Cell, list[LiveJob]] = field(default_factory=dict)


def who_sits_down(
    waiting: Sequence[LiveJob], on_gpus: Iterable[LiveJob], plan: Seating, bound: Container[str] = ()
) -> tuple[list[LiveJob], list[LiveJob]]:
    """Of jobs that wait for their GPUs: those that may have them now, and suspended ones that could, but elsewhere.

    A suspended job goes on only where it was; if the plan has it elsewhere it has to be ended first. Those of `bound`
    have GPUs and do not make room: nothing is kept idle for whoever waits for them.
    """
    room = _Room()
    for job in on_gpus:
        for cell in cells(job.last.gpus):
            room.users.setdefault(cell, []).append(job)
    seated: list[LiveJob] = []
    barred: list[LiveJob] = []
    for job in sorted(waiting, key=_waits_since):
        mine = cells(plan.places[job.id])
        if not all(_free(job, cell, room, plan) for cell in mine):
            stuck = any(
                other.id in bound and plan.apart(job, other) for cell in mine for other in room.users.get(cell, ())
            )
            for cell in mine if not stuck else ():
                room.kept.setdefault(cell, []).append(job)
        elif job.state == JobState.SUSPENDED and cells(job.last.gpus) != mine:
            barred.append(job)  # until it has been ended its GPUs are kept for it, or it would never be its turn
            for cell in mine:
                room.kept.setdefault(cell, []).append(job)
        else:
            seated.append(job)
            for cell in mine:
                room.users.setdefault(cell, []).append(job)
    return seated, barred


def out_of_turn(on_gpus: Iterable[LiveJob], bound: Container[str], plan: Seating) -> list[LiveJob]:
    """Jobs that run beside others with whom they take turns by now: who came last makes room.

    A pair that is undone becomes two jobs that take turns, and so do jobs that another policy had put together.
    Those of `bound` would lose their work: they leave last.
    """
    stay: dict[Cell, list[LiveJob]] = {}
    leave = []
    present = [job for job in on_gpus if job.state != JobState.STOPPING and plan.of(job).turn]
    for job in sorted(present, key=lambda job: (job.id not in bound, job.last.launched_s, job.order)):
        mine = cells(job.last.gpus)
        if any(plan.apart(job, other) for cell in mine for other in stay.get(cell, ())):
            leave.append(job)
            continue
        for cell in mine:
            stay.setdefault(cell, []).append(job)
    return leave


def whose_turn_is_over(
    running: Iterable[LiveJob], waiting: Sequence[LiveJob], plan: Seating, now_s: float, quantum_s: float
) -> list[LiveJob]:
    """Jobs that have run for a quantum while others wait for their turn on the same GPUs."""
    over = []
    for job in running:
        since_s = job.last.since_s
        if job.state != JobState.RUNNING or since_s is None or now_s - since_s < quantum_s or not plan.of(job).turn:
            continue
        mine = cells(job.last.gpus)
        if any(plan.apart(job, other) and mine & cells(plan.places[other.id]) for other in waiting):
            over.append(job)
    return over


def _free(job: LiveJob, cell: Cell, room: _Room, plan: Seating) -> bool:
    """Whether a job may have a GPU beside those who are there."""
    there = [other for other in room.users.get(cell, ()) if other is not job]
    if len(there) >= SLOTS or any(plan.apart(job, other) for other in room.kept.get(cell, ())):
        return False
    if any(other.state == JobState.STOPPING or not plan.wants(other, cell) for other in there):
        return False
    if any(plan.apart(job, other) for other in there):
        return False
    size = plan.room_gib.get(cell[0], 0.0)
    need = sum(plan.need_gib.get(other.id, other.spec.gpu_mem_gib) for other in [job, *there])
    return not size or need <= size + 1e-6


def _waits_since(job: LiveJob) -> tuple[float, bool, int]:
    """When a job last had to leave its GPUs; those that never had any come by their age, and first of equals."""
    last = job.last if job.attempts else None
    if last is None:
        return job.submitted_s, False, job.order
    return job.stop_asked_s if last.ended_s is None else last.ended_s, True, job.order
