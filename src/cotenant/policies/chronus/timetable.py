"""The timetable: what was promised to whom, and who holds which lease. Remembers jobs by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.policies.chronus import program
from cotenant.policies.chronus.admission import AdmissionAnswer, Ask, Verdict, admit, room_after
from cotenant.policies.chronus.leases import estimate_s, leases_needed, next_lease, slots_before, whole_share
from cotenant.policies.chronus.packing import LeasePairs, pack

_GAP = 0.02  # of the present lease: the program may stop so close to the best


@dataclass(slots=True)
class Promise:
    """GPUs reserved, the last lease that ends in time, leases needed, and the leases given (none yet: fresh)."""

    gpus: int
    end: int
    need: int
    leases: Ints | None = None


@dataclass(slots=True)
class Tally:
    """How boundaries were decided."""

    boundaries: int = 0
    optimal: int = 0  # by the program, proved best
    stopped: int = 0  # by the program, out of time
    left_out: int = 0  # promises without leases, summed over boundaries
    pairs: int = 0  # largest program
    gaps: list[float] = field(default_factory=list)  # objective of the program minus that of the packing


class Timetables:
    """Promises and plans of one run. `admit` answers newcomers, `assign` makes the plan of a lease boundary."""

    def __init__(self, lease_s: float, *, solver: str, objective: str, budget_s: float, new_only: bool = False) -> None:
        self.lease_s, self.solver, self.objective, self.budget_s = lease_s, solver, objective, budget_s
        self.new_only = new_only  # admission moves nobody who has leases already (as released)
        self.answers: dict[int, AdmissionAnswer] = {}
        self.promises: dict[int, Promise] = {}
        self.refused = False  # whether anybody was refused since the last boundary
        self.tally = Tally()

    def is_promised(self, ids: Ints) -> np.ndarray:
        """Whether each job has a promise."""
        return np.fromiter((row in self.promises for row in ids.tolist()), bool, len(ids))

    def given(self) -> dict[int, Ints]:
        """Row -> leases that were given out; arrays that are replaced, never changed."""
        return {row: promise.leases for row, promise in self.promises.items() if promise.leases is not None}

    def written(self, rows: set[int]) -> dict[int, list[Any]]:
        """Answers and promises of these jobs as plain data."""
        found: dict[int, list[Any]] = {}
        for row in sorted(rows & self.answers.keys()):
            answer, kept = self.answers[row], self.promises.get(row)
            leases = None if kept is None or kept.leases is None else kept.leases.tolist()
            promise = None if kept is None else [kept.gpus, kept.end, kept.need, leases]
            found[row] = [str(answer.verdict), answer.step, answer.earliest_slot, answer.reason, promise]
        return found

    def read(self, row: int, written: list[Any]) -> None:
        """The inverse, for one job."""
        verdict, step, earliest, reason, promise = written
        self.answers[row] = AdmissionAnswer(Verdict(verdict), step, earliest, reason)
        if promise is not None:
            gpus, end, need, leases = promise
            self.promises[row] = Promise(gpus, end, need, None if leases is None else np.array(leases, np.int64))

    def needs(self, view: View, which: Ints) -> tuple[Ints, Ints]:
        """GPUs to reserve for these jobs, and leases still needed."""
        believed = view.believed_s[which]
        done = believed - view.remaining_s[which]
        reserved = estimate_s(believed, view.restore_s[which], self.lease_s)
        node_gpus = view.site.largest_node
        return whole_share(view.gpus[which], node_gpus), leases_needed(reserved - done, self.lease_s)

    # -- admission ---------------------------------------------------------------------------------------------

    def admit(self, view: View) -> None:
        """Answer every job that has no answer yet, in order of submission."""
        ids = view.rows
        which = np.flatnonzero(np.fromiter((i not in self.answers for i in ids.tolist()), bool, len(ids)))
        if not len(which):
            return
        self._forget(set(ids.tolist()))
        which = which[np.lexsort((view.rows[which], view.submit_s[which]))]
        steps, first = view.steps.take(which), next_lease(view.now_s, self.lease_s)
        slots = slots_before(steps.time_s, first, self.lease_s)
        gpus, need = self.needs(view, which)
        for k, at in enumerate(which.tolist()):
            valid = np.flatnonzero(steps.value[k] > 0)
            if not len(valid):
                self.answers[int(ids[at])] = AdmissionAnswer(Verdict.BEST_EFFORT, -1, -1, "it has no deadline")
                continue
            ask = Ask(int(gpus[k]), int(need[k]), tuple(slots[k, valid].tolist()))
            self._answer(view.cluster_gpus, int(ids[at]), ask, first)

    def _forget(self, active: set[int]) -> None:
        """Jobs that are gone need no leases."""
        for row in self.promises.keys() - active:
            del self.promises[row]

    def _answer(self, capacity: int, row: int, ask: Ask, first: int) -> None:
        answer = self.ask(capacity, ask, first)
        self.answers[row] = answer
        if answer.promised:
            self.promises[row] = Promise(ask.gpus, first + ask.slots[answer.step], ask.need)
        else:
            self.refused = True

    def ask(self, capacity: int, ask: Ask, first: int) -> AdmissionAnswer:
        """What a job would be told now; changes nothing."""
        fixed = [(p.gpus, p.leases) for p in self.promises.values() if p.leases is not None]
        fresh = [p for p in self.promises.values() if p.leases is None]
        length = max(
            [*ask.slots, *(p.end - first for p in fresh), *(int(ls[-1]) + 1 - first for _, ls in fixed if len(ls)), 1]
        )
        free = room_after(capacity, first, fixed, length + 1)
        asks = [Ask(p.gpus, min(p.need, max(p.end - first, 0)), (max(p.end - first, 0),)) for p in fresh]
        answer = admit(free, asks, ask)
        if answer.step == 0 or self.new_only:
            return answer
        every = [
            Ask(p.gpus, min(self._left(p, first), max(p.end - first, 0)), (max(p.end - first, 0),))
            for p in self.promises.values()
        ]
        again = admit(np.full(length + 1, capacity, np.int64), every, ask)
        if again.step >= 0 and (answer.step < 0 or again.step < answer.step):
            for promise in self.promises.values():
                promise.leases = None  # all are packed anew at the boundary
            return again
        return answer

    @staticmethod
    def _left(promise: Promise, first: int) -> int:
        """Leases that a promise still needs from lease `first` on."""
        return promise.need if promise.leases is None else int((promise.leases >= first).sum())

    # -- the boundary ------------------------------------------------------------------------------------------

    def assign(self, view: View, lease: int) -> set[int]:
        """Give out all leases anew; the rows of those who hold the one that begins now."""
        ids = view.rows
        self._forget(set(ids.tolist()))
        which = np.flatnonzero(self.is_promised(ids))
        self.tally.boundaries += 1
        refused, self.refused = self.refused, False
        if not len(which):
            return set()
        pairs = self._pairs(view, which, lease)
        capacity = np.full(int(pairs.slots.max(initial=1)), view.cluster_gpus, np.int64)
        packing = pack(pairs, capacity, len(which))
        chosen, held = packing.chosen, packing.held
        if self.solver == "milp":
            least = self.objective == "minimise" or (self.objective == "adaptive" and refused)
            sign = -1.0 if least else 1.0
            found = program.solve(pairs, capacity, len(which), sign, budget_s=self.budget_s, start=packing, gap=_GAP)
            before = program.objective_of(pairs, capacity, chosen, held, sign)
            self.tally.gaps.append(found.objective - before)
            self.tally.optimal += found.optimal
            self.tally.stopped += not found.optimal
            self.tally.pairs = max(self.tally.pairs, len(pairs))
            if found.objective >= before:
                chosen, held = found.chosen, found.held
        return self._keep(ids[which], pairs, chosen, held, lease)

    def _pairs(self, view: View, which: Ints, lease: int) -> LeasePairs:
        """A pair for each job and each step that can still be kept; whoever can keep none gets all leases until its
        last one, and at least the present."""
        steps = view.steps.take(which)
        gpus, need = self.needs(view, which)
        slots = slots_before(steps.time_s, lease, self.lease_s)
        open_ = (steps.value > 0) & (slots >= need[:, None])
        stuck = ~open_.any(axis=1)
        latest = np.argmax(np.where(steps.value > 0, np.nan_to_num(steps.time_s, nan=-np.inf), -np.inf), axis=1)
        rows = np.flatnonzero(stuck)
        slots[rows, latest[rows]] = np.maximum(slots[rows, latest[rows]], 1)
        need[rows] = np.minimum(need[rows], slots[rows, latest[rows]])
        open_[rows, latest[rows]] = True
        job, step = np.nonzero(open_)
        return LeasePairs(job.astype(np.int64), gpus[job], need[job], slots[job, step], steps.value[job, step])

    def _keep(self, ids: Ints, pairs: LeasePairs, chosen: Ints, held: dict[int, Ints], lease: int) -> set[int]:
        """Write the plan down."""
        now: set[int] = set()
        for job, row in enumerate(ids.tolist()):
            promise, pair = self.promises[row], int(chosen[job])
            if pair < 0:
                promise.leases = np.zeros(0, np.int64)
                self.tally.left_out += 1
                continue
            promise.leases = held[job] + lease
            promise.gpus, promise.need = int(pairs.gpus[pair]), int(pairs.need[pair])
            promise.end = lease + int(pairs.slots[pair])
            if held[job][0] == 0:
                now.add(row)
        return now
