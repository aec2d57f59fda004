"""The timetable: who is promised what, and who holds which lease.

Two kinds of promise. Jobs that can be stopped and go on anywhere get leases, given out anew at each boundary; the plan
that made a promise is kept until there is one that keeps everybody's. Others get a window (`windows`), which stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cotenant.core.state import IntMatrix
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.policies.chronus import program
from cotenant.policies.chronus.admission import AdmissionAnswer, Ask, Verdict, admit
from cotenant.policies.chronus.leases import NEVER, in_words, next_lease, slots_before
from cotenant.policies.chronus.packing import LeasePacking, LeasePairs, pack
from cotenant.policies.chronus.promises import Asked, Promise, PromiseTable
from cotenant.policies.chronus.rooms import Slots
from cotenant.policies.chronus.windows import LeaseWindows, is_bound

_GAP = 0.02  # of the present lease: the program may stop so close to the best
_NONE: Ints = np.zeros(0, np.int64)


@dataclass(slots=True)
class Tally:
    """How boundaries were decided."""

    boundaries: int = 0
    optimal: int = 0  # by the program, proved best
    stopped: int = 0  # by the program, out of time
    kept: int = 0  # by the plans that made the promises: the packing would have left somebody out
    left_out: int = 0  # promises without leases, summed over boundaries
    pairs: int = 0  # largest program
    gaps: list[float] = field(default_factory=list)  # objective of the program minus that of the packing


class Timetables:
    """Promises and plans of one run. `admit` answers newcomers, `assign` makes the plan of a lease boundary.

    `released`: as the authors' simulator does it: admission moves nobody who has leases already, every step of a soft
    job is as good a promise as any other, and what a job takes is rounded to minutes.
    """

    def __init__(self, lease_s: float, *, solver: str, objective: str, budget_s: float, released: bool = False) -> None:
        self.solver, self.objective, self.budget_s = solver, objective, budget_s
        self.table = PromiseTable(lease_s, released)
        self.windows = LeaseWindows(self.table)
        self.refused = False  # whether anybody was here without a promise for its deadline since the last boundary
        self.tally = Tally()

    # -- admission ---------------------------------------------------------------------------------------------

    def admit(self, view: View, but: np.ndarray) -> None:
        """Answer every job that has no answer yet, or asks for something else now, in order of submission.

        `but` those that are still looked at.
        """
        self.table.forget(view)
        which = np.flatnonzero(self._unanswered(view) & ~but)
        if not len(which):
            return
        which = which[np.lexsort((view.rows[which], view.submit_s[which]))]
        steps, first = view.steps.take(which), next_lease(view.now_s, self.table.lease_s)
        slots = slots_before(steps.time_s, first, self.table.lease_s)
        gpus, need = self.table.needs(view, which)
        level = np.zeros(len(which), np.int64) if self.table.released else self.table.blocks(view).level(gpus)
        bound = np.zeros(len(which), bool) if self.table.released else is_bound(view, which)
        for k, at in enumerate(which.tolist()):
            row, valid = int(view.rows[at]), np.flatnonzero(steps.value[k] > 0)
            self.table.promises.pop(row, None)
            if view.facts.bonds is not None:
                self.table.asked[row] = self._question(view, at)
            if not len(valid):
                self.table.answers[row] = AdmissionAnswer(Verdict.BEST_EFFORT, -1, -1, "it has no deadline")
                continue
            ask = Ask(int(gpus[k]), int(need[k]), tuple(slots[k, valid].tolist()), int(level[k]))
            self._answer(view, row, ask, first, bool(bound[k]))

    def _unanswered(self, view: View) -> np.ndarray:
        """Jobs without an answer; those whose promise is gone; live also those that ask for something else now."""
        rows, answers, promises = view.rows.tolist(), self.table.answers, self.table.promises
        known = [row in answers and (row in promises or answers[row].step < 0) for row in rows]
        if view.facts.bonds is not None:
            for at in np.flatnonzero(known).tolist():
                known[at] = self.table.asked.get(rows[at], self._question(view, at)) == self._question(view, at)
        return ~np.array(known, bool)

    @staticmethod
    def _question(view: View, at: int) -> Asked:
        steps = view.steps.take(np.array([at]))
        valid = np.flatnonzero(steps.value[0] > 0)
        worth = zip(steps.time_s[0, valid].tolist(), steps.value[0, valid].tolist(), strict=True)
        return int(view.asked_gpus[at]), tuple(worth)

    def _answer(self, view: View, row: int, ask: Ask, first: int, bound: bool) -> None:
        bonds = view.facts.bonds
        if bonds is not None and bonds.guessed[row]:
            reason = "nobody knows how long it takes: submit it with 'expected', e.g. 2h"
            answer = AdmissionAnswer(Verdict.REFUSED, -1, -1, reason)
        elif bound:
            answer = self.windows.ask(view, row, ask, first)
        elif ask.need >= NEVER:
            answer = AdmissionAnswer(Verdict.REFUSED, -1, -1, "a lease is too short for it to be stopped after each")
        else:
            answer = self.ask(view, row, ask, first)
        slot_s = (first + answer.earliest_slot) * self.table.lease_s if answer.earliest_slot >= 0 else 0.0
        by_s = min((end_s for end_s in (slot_s, answer.by_s) if end_s), default=0.0)
        reason = answer.reason
        if by_s and not answer.promised:
            later = in_words(by_s - float(view.submit_s[view.at(row)]))
            reason = f"{reason}; a deadline {later} after submission could be promised"
        elif answer.step > 0:
            worth = view.steps.take(np.array([view.at(row)])).value[0]
            reason = f"{reason} (worth {worth[self.table.column_of(view, row, answer.step)]:g} of {worth.max():g})"
        self.table.answers[row] = replace(answer, reason=reason, at_s=float(view.now_s), by_s=float(by_s), plan=())

    def ask(self, view: View, row: int, ask: Ask, first: int) -> AdmissionAnswer:
        """Answer a job that is bound to no node, and reserve its leases if it is promised any."""
        others = [one for one in self.table.promises.values() if not one.place]
        fresh = [one for one in others if one.fresh]
        length = self.table.length_of(first, *ask.slots)
        slots = self.table.slots(view, first, length, plans=False)
        windows = slots.left()
        for one in others:
            if not one.fresh:
                slots.take(one.gpus, one.leases)
        answer, moved = admit(slots.left(), [self._as_ask(view, one, first) for one in fresh], ask), fresh
        if answer.step != 0 and not self.table.released:
            again = admit(windows, [self._as_ask(view, one, first) for one in others], ask)
            if again.step >= 0 and (answer.step < 0 or again.step < answer.step):
                answer, moved = again, others
            elif answer.step < 0 <= again.earliest_slot and not 0 <= answer.earliest_slot <= again.earliest_slot:
                answer = again
        if answer.promised:
            for one, plan in zip(moved, answer.plan[:-1], strict=True):
                one.leases = np.concatenate([one.leases[one.leases < first], plan + first])
            leases, end = answer.plan[-1] + first, first + ask.slots[answer.step]
            self.table.promises[row] = Promise(
                ask.gpus, end, ask.need, self.table.column_of(view, row, answer.step), leases
            )
        return answer

    def _as_ask(self, view: View, one: Promise, first: int) -> Ask:
        """What a promise still asks for from lease `first` on."""
        slots = max(one.end - first, 0)
        left = one.need if one.fresh else int((one.leases >= first).sum())
        level = 0 if self.table.released else int(self.table.blocks(view).level(np.array(one.gpus)))
        return Ask(one.gpus, min(left, slots), (slots,), level)

    # -- the boundary ------------------------------------------------------------------------------------------

    def assign(self, view: View, lease: int) -> set[int]:
        """Give out all leases anew; the rows of those who hold the one that begins now."""
        self.table.forget(view)
        self.tally.boundaries += 1
        refused, self.refused = self.refused, False
        held = self.windows.holders(view, lease)
        which = np.flatnonzero(self.table.is_promised(view.rows))
        which = (
            which[[not self.table.promises[row].place for row in view.rows[which].tolist()]] if len(which) else which
        )
        if not len(which):
            return held
        pairs = self._pairs(view, which, lease)
        length = int(pairs.slots.max(initial=1))
        capacity = self.table.slots(view, lease, length, plans=False).left()
        packing = pack(pairs, capacity, len(which))
        if not self.table.released and (packing.chosen < 0).any():
            packing = self._kept(view, which, pairs, capacity, packing, lease)
        chosen, slots = packing.chosen, packing.held
        if self.solver == "milp":
            chosen, slots = self._solved(pairs, capacity, len(which), packing, refused)
        return held | self._keep(view.rows[which], pairs, chosen, slots, lease)

    def note_refused(self, rows: Ints) -> None:
        """Whether anybody is here without a promise for its deadline: `adaptive` then spares the next lease."""
        answers = self.table.answers
        refused = (row in answers and answers[row].verdict is Verdict.REFUSED for row in rows.tolist())
        self.refused = self.refused or any(refused)

    def _solved(
        self, pairs: LeasePairs, capacity: IntMatrix, jobs: int, packing: LeasePacking, refused: bool
    ) -> tuple[Ints, dict[int, Ints]]:
        """The program's timetable, if it is no worse than the packing."""
        least = self.objective == "minimise" or (self.objective == "adaptive" and refused)
        sign = -1.0 if least else 1.0
        found = program.solve(pairs, capacity, jobs, sign, budget_s=self.budget_s, start=packing, gap=_GAP)
        before = program.objective_of(pairs, capacity, packing.chosen, packing.held, sign)
        self.tally.gaps.append(found.objective - before)
        self.tally.optimal += found.optimal
        self.tally.stopped += not found.optimal
        self.tally.pairs = max(self.tally.pairs, len(pairs))
        return (found.chosen, found.held) if found.objective >= before else (packing.chosen, packing.held)

    def _pairs(self, view: View, which: Ints, lease: int) -> LeasePairs:
        """A pair for each job and each step that can still be kept, none later than the promised one; whoever can keep
        none gets all leases until its last one, and at least the present."""
        steps = view.steps.take(which)
        gpus, need = self.table.needs(view, which)
        slots = slots_before(steps.time_s, lease, self.table.lease_s)
        worth = steps.value > 0
        if not self.table.released:
            told = np.array([self.table.promises[row].step for row in view.rows[which].tolist()])
            worth &= np.arange(worth.shape[1])[None, :] <= told[:, None]
        open_ = worth & (slots >= need[:, None])
        stuck = ~open_.any(axis=1)
        latest = np.argmax(np.where(worth, np.nan_to_num(steps.time_s, nan=-np.inf), -np.inf), axis=1)
        rows = np.flatnonzero(stuck)
        slots[rows, latest[rows]] = np.maximum(slots[rows, latest[rows]], 1)
        need[rows] = np.minimum(need[rows], slots[rows, latest[rows]])
        open_[rows, latest[rows]] = True
        job, step = np.nonzero(open_)
        level = None if self.table.released else self.table.blocks(view).level(gpus)[job]
        return LeasePairs(job.astype(np.int64), gpus[job], need[job], slots[job, step], steps.value[job, step], level)

    def _kept(
        self, view: View, which: Ints, pairs: LeasePairs, capacity: IntMatrix, packing: LeasePacking, lease: int
    ) -> LeasePacking:
        """The plans that made the promises, where they serve more than a packing from scratch."""
        slots = Slots.empty(self.table.blocks(view), lease, capacity.shape[1])
        chosen, held = np.full(len(which), -1, np.int64), dict[int, Ints]()
        for job, row in enumerate(view.rows[which].tolist()):
            leases = self.table.promises[row].leases
            mine, own = leases[leases >= lease], np.flatnonzero(pairs.job == job)
            fits = own[pairs.need[own] <= len(mine)]
            if len(fits):
                pair = int(fits[np.argmax(pairs.slots[fits])])
                chosen[job], held[job] = pair, mine[: int(pairs.need[pair])] - lease
                slots.take(int(pairs.gpus[pair]), mine[: int(pairs.need[pair])])
        left = capacity - slots.used[: len(capacity)]
        if (left < 0).any() or (chosen < 0).sum() >= (packing.chosen < 0).sum():
            return packing
        self.tally.kept += 1
        return LeasePacking(chosen, held, left)

    def _keep(self, ids: Ints, pairs: LeasePairs, chosen: Ints, held: dict[int, Ints], lease: int) -> set[int]:
        """Write the plan down."""
        now: set[int] = set()
        for job, row in enumerate(ids.tolist()):
            promise, pair = self.table.promises[row], int(chosen[job])
            promise.fresh = False
            if pair < 0:
                promise.leases = _NONE
                self.tally.left_out += 1
                continue
            promise.leases = held[job] + lease
            promise.gpus, promise.need = int(pairs.gpus[pair]), int(pairs.need[pair])
            if self.table.released:
                promise.end = lease + int(pairs.slots[pair])
            if held[job][0] == 0:
                now.add(row)
        return now
