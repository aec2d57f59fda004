"""The timetable: what was promised to whom, and who holds which lease. Remembers jobs by row.

Two kinds of promise. Jobs that can be stopped and go on anywhere get leases, given out anew at each boundary; the plan
that made a promise is kept until there is one that keeps everybody's. Others get a window (`windows`), which stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Slices
from cotenant.core.state import IntMatrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.chronus import program
from cotenant.policies.chronus.admission import AdmissionAnswer, Ask, Verdict, admit, promise_of, refusal_of
from cotenant.policies.chronus.leases import (
    MOST_SLOTS, NEVER, estimate_s, in_words, lease_at, leases_for, leases_needed, next_lease, slots_before, window_for,
)  # fmt: skip
from cotenant.policies.chronus.packing import LeasePacking, LeasePairs, pack
from cotenant.policies.chronus.rooms import Blocks, Slots
from cotenant.policies.chronus.windows import find_window, is_bound, slowest

_GAP = 0.02  # of the present lease: the program may stop so close to the best
_NONE: Ints = np.zeros(0, np.int64)
Asked = tuple[int, tuple[tuple[float, float], ...]]  # GPUs, and when each step of its deadline is and what it is worth


@dataclass(slots=True)
class Promise:
    """GPUs reserved, the lease before which it ends, leases needed, the leases given, and what was asked.

    `fresh`: it has seen no boundary yet. `place`: where its window is; empty where it is bound to no node.
    """

    gpus: int
    end: int
    need: int
    step: int
    leases: Ints
    fresh: bool = True
    place: Slices = ()


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
        self.lease_s, self.solver, self.objective, self.budget_s = lease_s, solver, objective, budget_s
        self.released = released
        self.answers: dict[int, AdmissionAnswer] = {}
        self.promises: dict[int, Promise] = {}
        self.asked: dict[int, Asked] = {}  # to what a live job got its answer
        self.refused = False  # whether there has been anybody without a promise for its deadline since the last boundary
        self.tally = Tally()

    def is_promised(self, ids: Ints) -> np.ndarray:
        """Whether each job has a promise."""
        return np.fromiter((row in self.promises for row in ids.tolist()), bool, len(ids))

    def given(self) -> dict[int, Ints]:
        """Row -> leases that are reserved; arrays that are replaced, never changed."""
        return {row: promise.leases for row, promise in self.promises.items()}

    def windows(self, lease: int) -> dict[int, Slices]:
        """Jobs whose window covers a lease, and where."""
        return {row: one.place for row, one in self.promises.items() if one.place and (one.leases == lease).any()}

    def written(self, rows: set[int]) -> dict[int, list[Any]]:
        """Answers and promises of these jobs as plain data."""
        found: dict[int, list[Any]] = {}
        for row in sorted(rows & self.answers.keys()):
            told, kept = self.answers[row], self.promises.get(row)
            answer = [str(told.verdict), told.step, told.earliest_slot, told.reason, told.at_s, told.by_s]
            promise = None if kept is None else [
                kept.gpus, kept.end, kept.need, kept.leases.tolist(), kept.step, kept.fresh, kept.place
            ]  # fmt: skip
            found[row] = [answer, promise, self.asked.get(row)]
        return found

    def read(self, row: int, written: list[Any]) -> None:
        """The inverse, for one job; also of what versions before windows wrote."""
        if isinstance(written[0], str):
            verdict, step, earliest, reason, old = written
            written = [[verdict, step, earliest, reason], old and [*old, 0, old[3] is None, ()], None]
        (verdict, *told), promise, asked = written
        self.answers[row] = AdmissionAnswer(Verdict(verdict), *told)
        if asked is not None:
            self.asked[row] = asked[0], tuple((at_s, worth) for at_s, worth in asked[1])
        if promise is not None:
            gpus, end, need, leases, step, fresh, place = promise
            given = np.array(leases or (), np.int64)
            self.promises[row] = Promise(gpus, end, need, step, given, fresh, tuple((n, g) for n, g in place))

    # -- what is there, and what is needed ---------------------------------------------------------------------

    def blocks(self, view: View) -> Blocks:
        """The nodes as they are now, with what jobs have that nobody may stop."""
        nodes, bonds = view.site.node[:, col.NODE_CAP].copy(), view.facts.bonds
        for node, gpus, _ in bonds.pinned if bonds is not None else ():
            nodes[node] += gpus
        return Blocks(nodes, view.site.largest_node, self.released)

    def slots(self, view: View, first: int, length: int, *, plans: bool, but: int = -1) -> Slots:
        """What windows leave from lease `first` on; with `plans` what the others' leases leave, too."""
        found, bonds = Slots.empty(self.blocks(view), first, length), view.facts.bonds
        for node, gpus, until_s in bonds.pinned if bonds is not None else ():
            end = min(next_lease(until_s, self.lease_s) - first, length) if np.isfinite(until_s) else length
            found.bind(((node, gpus),), first + np.arange(max(end, 1)))
        for row, promise in self.promises.items():
            if promise.place and row != but:
                found.bind(promise.place, promise.leases)
            elif plans and row != but:
                found.take(promise.gpus, promise.leases)
        return found

    def needs(self, view: View, which: Ints) -> tuple[Ints, Ints]:
        """GPUs to reserve for these jobs, and leases still needed if they are stopped after each."""
        gpus = self.blocks(view).reserved(view.gpus[which])
        if self.released:
            believed_s = view.believed_s[which]
            reserved_s = estimate_s(believed_s, view.restore_s[which], self.lease_s)
            return gpus, leases_needed(reserved_s - believed_s + view.remaining_s[which], self.lease_s)
        return gpus, leases_for(self._left_s(view, which), view.restore_s[which], self.lease_s)

    @staticmethod
    def _left_s(view: View, which: Ints) -> Floats:
        """Seconds that jobs still take at most, wherever they run."""
        left_s, bonds = view.remaining_s[which], view.facts.bonds
        if bonds is not None:
            left_s = np.maximum(left_s, bonds.reserve_s[view.rows[which]] - view.progress_s[which])
        return left_s / slowest(view, which)

    def _length(self, first: int, *ends: int) -> int:
        """Slots from lease `first` on until everything that is known is over, and one more."""
        last = max((int(p.leases[-1]) + 1 for p in self.promises.values() if len(p.leases)), default=first)
        due = max((p.end for p in self.promises.values()), default=first)
        return min(max(last - first, due - first, *ends, 1), 2 * MOST_SLOTS) + 1

    # -- admission ---------------------------------------------------------------------------------------------

    def admit(self, view: View) -> None:
        """Answer every job that has no answer yet, or asks for something else now, in order of submission."""
        self._forget(view)
        which = np.flatnonzero(self._unanswered(view))
        if not len(which):
            return
        which = which[np.lexsort((view.rows[which], view.submit_s[which]))]
        steps, first = view.steps.take(which), next_lease(view.now_s, self.lease_s)
        slots = slots_before(steps.time_s, first, self.lease_s)
        gpus, need = self.needs(view, which)
        level = np.zeros(len(which), np.int64) if self.released else self.blocks(view).level(gpus)
        bound = np.zeros(len(which), bool) if self.released else is_bound(view, which)
        for k, at in enumerate(which.tolist()):
            row, valid = int(view.rows[at]), np.flatnonzero(steps.value[k] > 0)
            self.promises.pop(row, None)
            if view.facts.bonds is not None:
                self.asked[row] = self._question(view, at)
            if not len(valid):
                self.answers[row] = AdmissionAnswer(Verdict.BEST_EFFORT, -1, -1, "it has no deadline")
                continue
            ask = Ask(int(gpus[k]), int(need[k]), tuple(slots[k, valid].tolist()), int(level[k]))
            self._answer(view, row, ask, first, bool(bound[k]))

    def _unanswered(self, view: View) -> np.ndarray:
        """Jobs without an answer; those whose promise is gone; live also those that ask for something else now."""
        rows, answers, promises = view.rows.tolist(), self.answers, self.promises
        known = [row in answers and (row in promises or answers[row].step < 0) for row in rows]
        if view.facts.bonds is not None:
            for at in np.flatnonzero(known).tolist():
                known[at] = self.asked.get(rows[at], self._question(view, at)) == self._question(view, at)
        return ~np.array(known, bool)

    @staticmethod
    def _question(view: View, at: int) -> Asked:
        steps = view.steps.take(np.array([at]))
        valid = np.flatnonzero(steps.value[0] > 0)
        worth = zip(steps.time_s[0, valid].tolist(), steps.value[0, valid].tolist(), strict=True)
        return int(view.asked_gpus[at]), tuple(worth)

    def _forget(self, view: View) -> None:
        """Jobs that are gone need no leases; a window on a node that is no more has to be looked for anew."""
        there, bonds = set(view.rows.tolist()), view.facts.bonds
        shut = set(np.flatnonzero(view.site.node[:, col.NODE_CAP] == 0).tolist() if bonds is None else bonds.shut)
        for row, promise in list(self.promises.items()):
            if row not in there or (promise.place and any(node in shut for node, _ in promise.place)):
                del self.promises[row]

    def leave_nodes(self) -> None:
        """The nodes are others: windows are to be looked for anew."""
        self.promises = {row: one for row, one in self.promises.items() if not one.place}

    def _answer(self, view: View, row: int, ask: Ask, first: int, bound: bool) -> None:
        bonds = view.facts.bonds
        if bonds is not None and bonds.guessed[row]:
            reason = "nobody knows how long it takes: submit it with 'expected', e.g. 2h"
            answer = AdmissionAnswer(Verdict.REFUSED, -1, -1, reason)
        elif bound:
            answer = self._ask_window(view, row, ask, first)
        elif ask.need >= NEVER:
            answer = AdmissionAnswer(Verdict.REFUSED, -1, -1, "a lease is too short for it to be stopped after each")
        else:
            answer = self.ask(view, row, ask, first)
        by_s = (first + answer.earliest_slot) * self.lease_s if answer.earliest_slot >= 0 else 0.0
        reason = answer.reason
        if by_s and not answer.promised:
            later = in_words(by_s - float(view.submit_s[view.at(row)]))
            reason = f"{reason}; a deadline {later} after submission could be promised"
        elif answer.step > 0:
            worth = view.steps.take(np.array([view.at(row)])).value[0]
            reason = f"{reason} (worth {worth[self._column(view, row, answer.step)]:g} of {worth.max():g})"
        self.answers[row] = replace(answer, reason=reason, at_s=float(view.now_s), by_s=float(by_s), plan=())

    def ask(self, view: View, row: int, ask: Ask, first: int) -> AdmissionAnswer:
        """Answer a job that is bound to no node, and reserve its leases if it is promised any."""
        others = [one for one in self.promises.values() if not one.place]
        fresh = [one for one in others if one.fresh]
        length = self._length(first, *ask.slots)
        slots = self.slots(view, first, length, plans=False)
        windows = slots.left()
        for one in others:
            if not one.fresh:
                slots.take(one.gpus, one.leases)
        answer, moved = admit(slots.left(), [self._as_ask(view, one, first) for one in fresh], ask), fresh
        if answer.step != 0 and not self.released:
            again = admit(windows, [self._as_ask(view, one, first) for one in others], ask)
            if again.step >= 0 and (answer.step < 0 or again.step < answer.step):
                answer, moved = again, others
            elif answer.step < 0 <= again.earliest_slot and not 0 <= answer.earliest_slot <= again.earliest_slot:
                answer = again
        if answer.promised:
            for one, plan in zip(moved, answer.plan[:-1], strict=True):
                one.leases = np.concatenate([one.leases[one.leases < first], plan + first])
            leases, end = answer.plan[-1] + first, first + ask.slots[answer.step]
            self.promises[row] = Promise(ask.gpus, end, ask.need, self._column(view, row, answer.step), leases)
        return answer

    def _as_ask(self, view: View, one: Promise, first: int) -> Ask:
        """What a promise still asks for from lease `first` on."""
        slots = max(one.end - first, 0)
        left = one.need if one.fresh else int((one.leases >= first).sum())
        level = 0 if self.released else int(self.blocks(view).level(np.array(one.gpus)))
        return Ask(one.gpus, min(left, slots), (slots,), level)

    @staticmethod
    def _column(view: View, row: int, step: int) -> int:
        """Which of the steps of a job is the so manieth that is worth something."""
        return int(np.flatnonzero(view.steps.take(np.array([view.at(row)])).value[0] > 0)[step])

    # -- windows -----------------------------------------------------------------------------------------------

    def _ask_window(self, view: View, row: int, ask: Ask, first: int) -> AdmissionAnswer:
        """Answer a job that is bound to where it begins, and reserve its window if it is promised one."""
        at = view.at(row)
        gpus, there = int(view.gpus[at]), int(self.blocks(view).nodes.sum())
        if gpus > there:
            return AdmissionAnswer(Verdict.REFUSED, -1, -1, f"it asks for {gpus} GPUs, and there are {there}")
        need = self._window(view, at)
        ask = replace(ask, need=need)
        if need >= NEVER:
            return refusal_of(ask, -1)
        if (there := self._stay(view, row, ask)) is not None:
            return there
        length = self._length(first, *ask.slots) + need
        slots = self.slots(view, first, length, plans=True)
        free, beside = self._quota(view, row, first, length), self._beside()
        for step, end in enumerate(ask.slots):
            found = find_window(view, slots, row, need, end, free, beside)
            if found is not None:
                return self._reserve(view, row, ask, step, first + np.arange(found[0], found[0] + need), found[1])
        found = find_window(view, slots, row, need, length, free, beside, latest=False)
        return refusal_of(ask, -1 if found is None else found[0] + need)

    def _window(self, view: View, at: int) -> int:
        """Leases in a row that a job needs from a start on, or from now on if it runs."""
        which, bonds = np.array([at]), view.facts.bonds
        begin_s = 0.0 if view.running[at] else float(view.restore_s[at]) + (bonds.handover_s if bonds else 0.0)
        return int(window_for(self._left_s(view, which), np.array(begin_s), self.lease_s)[0])

    def _reserve(
        self, view: View, row: int, ask: Ask, step: int, leases: Ints, place: Slices
    ) -> AdmissionAnswer:
        end = next_lease(view.now_s, self.lease_s) + ask.slots[step]
        self.promises[row] = Promise(ask.gpus, end, ask.need, self._column(view, row, step), leases, False, place)
        return promise_of(step, ask.slots[step], ask, ())

    def _stay(self, view: View, row: int, ask: Ask) -> AdmissionAnswer | None:
        """A job that runs already is promised to go on where it is, if it can."""
        place, now = view.placement(row), lease_at(view.now_s, self.lease_s)
        step = next((k for k, end in enumerate(ask.slots) if end >= ask.need), -1)
        slots = self.slots(view, now, self._length(now, *ask.slots), plans=True)
        end = next_lease(view.now_s, self.lease_s) + ask.need
        if not place or step < 0 or not slots.allows(place, 0, end - now):
            return None
        return self._reserve(view, row, ask, step, np.arange(now, end), place)

    def _quota(self, view: View, row: int, first: int, length: int) -> Ints:
        """GPUs of its guarantee that the tenant of a job has left in each slot."""
        tenant, tenants = int(view.tenant[view.at(row)]), view.tenant
        left = np.full(length, int(view.site.quota[tenant, col.Q_GUARANTEED]), np.int64)
        for other, one in self.promises.items():
            if other != row and tenants[view.at(other)] == tenant:
                mine = one.leases[(one.leases >= first) & (one.leases < first + length)] - first
                left[mine] -= int(view.gpus[view.at(other)])
        return left

    def _beside(self) -> list[tuple[int, Slices, Ints]]:
        return [(row, one.place, one.leases) for row, one in self.promises.items() if one.place]

    def bring_forward(self, view: View, row: int, lease: int, place: Slices) -> bool:
        """Let a window begin now, at this place, if everybody else keeps theirs; whether it does.

        What is left of the present lease is extra.
        """
        promise = self.promises[row]
        need = self._window(view, view.at(row)) + next_lease(view.now_s, self.lease_s) - lease
        slots = self.slots(view, lease, self._length(lease, need), plans=True, but=row)
        if not slots.allows(place, 0, min(need, len(slots))):
            return False
        promise.leases, promise.place = np.arange(lease, lease + need), place
        return True

    def may_stay(self, view: View, row: int, lease: int, place: Slices) -> bool:
        """Whether a job that nobody may stop can have a place for good: all promises are kept without it."""
        slots = self.slots(view, lease, self._length(lease), plans=True, but=row)
        return slots.allows(place, 0, len(slots))

    def _window_holders(self, view: View, lease: int) -> set[int]:
        """Who is in its window now. One that runs over goes on while that takes nothing from others; one that could
        not begin when it was to is given a later window, if there is one in time."""
        held = set()
        for row, promise in self.promises.items():
            if not promise.place:
                continue
            runs, begun = bool(view.running[view.at(row)]), int(promise.leases[0]) < lease
            if begun and not runs:
                self._begin_later(view, row, promise, lease)
            elif runs and int(promise.leases[-1]) < lease:
                slots = self.slots(view, lease, self._length(lease), plans=True, but=row)
                if slots.allows(promise.place, 0, 1):
                    promise.leases = np.append(promise.leases, lease)
            if (promise.leases == lease).any():
                held.add(row)
        return held

    def _begin_later(self, view: View, row: int, promise: Promise, lease: int) -> None:
        need, length = self._window(view, view.at(row)), self._length(lease)
        slots = self.slots(view, lease, length, plans=True, but=row)
        free, beside = self._quota(view, row, lease, length), [one for one in self._beside() if one[0] != row]
        found = find_window(view, slots, row, need, promise.end - lease, free, beside)
        if found is not None:
            promise.leases, promise.place = lease + np.arange(found[0], found[0] + need), found[1]

    # -- the boundary ------------------------------------------------------------------------------------------

    def assign(self, view: View, lease: int) -> set[int]:
        """Give out all leases anew; the rows of those who hold the one that begins now."""
        self._forget(view)
        self.tally.boundaries += 1
        refused, self.refused = self.refused, False
        held = self._window_holders(view, lease)
        which = np.flatnonzero(self.is_promised(view.rows))
        which = which[[not self.promises[row].place for row in view.rows[which].tolist()]] if len(which) else which
        if not len(which):
            return held
        pairs = self._pairs(view, which, lease)
        length = int(pairs.slots.max(initial=1))
        capacity = self.slots(view, lease, length, plans=False).left()
        packing = pack(pairs, capacity, len(which))
        if not self.released and (packing.chosen < 0).any():
            packing = self._kept(view, which, pairs, capacity, packing, lease)
        chosen, slots = packing.chosen, packing.held
        if self.solver == "milp":
            chosen, slots = self._solved(pairs, capacity, len(which), packing, refused)
        return held | self._keep(view.rows[which], pairs, chosen, slots, lease)

    def note_refused(self, rows: Ints) -> None:
        """Whether anybody is here without a promise for its deadline: `adaptive` then spares the next lease."""
        answers = self.answers
        self.refused = self.refused or any(answers[row].verdict is Verdict.REFUSED for row in rows.tolist())

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
        gpus, need = self.needs(view, which)
        slots = slots_before(steps.time_s, lease, self.lease_s)
        worth = steps.value > 0
        if not self.released:
            told = np.array([self.promises[row].step for row in view.rows[which].tolist()])
            worth &= np.arange(worth.shape[1])[None, :] <= told[:, None]
        open_ = worth & (slots >= need[:, None])
        stuck = ~open_.any(axis=1)
        latest = np.argmax(np.where(worth, np.nan_to_num(steps.time_s, nan=-np.inf), -np.inf), axis=1)
        rows = np.flatnonzero(stuck)
        slots[rows, latest[rows]] = np.maximum(slots[rows, latest[rows]], 1)
        need[rows] = np.minimum(need[rows], slots[rows, latest[rows]])
        open_[rows, latest[rows]] = True
        job, step = np.nonzero(open_)
        level = None if self.released else self.blocks(view).level(gpus)[job]
        return LeasePairs(job.astype(np.int64), gpus[job], need[job], slots[job, step], steps.value[job, step], level)

    def _kept(
        self, view: View, which: Ints, pairs: LeasePairs, capacity: IntMatrix, packing: LeasePacking, lease: int
    ) -> LeasePacking:
        """The plans that made the promises, where they serve more than a packing from scratch."""
        slots = Slots.empty(self.blocks(view), lease, capacity.shape[1])
        chosen, held = np.full(len(which), -1, np.int64), dict[int, Ints]()
        for job, row in enumerate(view.rows[which].tolist()):
            leases = self.promises[row].leases
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
            promise, pair = self.promises[row], int(chosen[job])
            promise.fresh = False
            if pair < 0:
                promise.leases = _NONE
                self.tally.left_out += 1
                continue
            promise.leases = held[job] + lease
            promise.gpus, promise.need = int(pairs.gpus[pair]), int(pairs.need[pair])
            if self.released:
                promise.end = lease + int(pairs.slots[pair])
            if held[job][0] == 0:
                now.add(row)
        return now
