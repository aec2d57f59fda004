"""Chronus: a timetable of leases for jobs with deadlines; everybody else fills what the leases leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Slices, Why
from cotenant.core.reasons import moment
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.placement.room import Room
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.chronus.leases import lease_at
from cotenant.policies.chronus.placing import movers_of, place_batch
from cotenant.policies.chronus.spare import order_of_spare
from cotenant.policies.chronus.timetable import Timetables

_SECOND_LOOK = 256  # jobs


class Chronus(PlanPolicy):
    """Deadlines kept by leases: admission, a timetable per lease, best effort in between."""

    name = "chronus"
    source = "Gao et al., SoCC'21"
    defaults: ClassVar[dict[str, Value]] = {
        "lease": 1200.0,  # seconds; a job that holds a lease is not disturbed until its end
        "slot": 300.0,  # seconds; jobs without a lease may change places so often
        "solver": "greedy",  # or milp
        "objective": "adaptive",  # use of the present lease: minimise, maximise, or by whether somebody was refused
        "budget": 2.0,  # seconds that the integer program may take
        "spare": "promised",  # or best-effort: who comes first on GPUs without a lease
        "search": 0,  # combinations of splits that the placement of jobs without a lease may try
    }

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        for name, known in (
            ("solver", ("greedy", "milp")),
            ("objective", ("adaptive", "minimise", "maximise")),
            ("spare", ("best-effort", "promised")),
        ):
            if self.params[name] not in known:
                raise InputError(f"policy 'chronus': {name}={self.params[name]}: write {' or '.join(known)}")
        self.lease_s, self.slot_s = self.number("lease"), self.number("slot")
        if not self.slot_s > 0 or abs(self.lease_s / self.slot_s - round(self.lease_s / self.slot_s)) > 1e-9:
            raise InputError(
                f"policy 'chronus': lease={self.lease_s:g} must be a multiple of slot={self.slot_s:g}, above 0"
            )
        self.begin(Context())

    def begin(self, context: Context) -> None:
        """Nothing is promised; asked at every slot and, but for compat, at every event."""
        quirks = context.compat.get("chronus", {})
        self._promised_first = quirks.get("spare", self.params["spare"]) == "promised"
        self.wakes = quirks.get("events") != "slots"
        self.timetables = Timetables(
            self.lease_s,
            solver=str(self.params["solver"]),
            objective=str(self.params["objective"]),
            budget_s=self.number("budget"),
            new_only=quirks.get("admission") == "new_only",
        )
        self._lease, self._slot = -1, -1
        self._held: set[int] = set()  # rows of jobs that hold the present lease
        self._present: set[int] = set()  # rows of the last decision

    # -- what outlives a crash ---------------------------------------------------------------------------------

    def remember(self) -> dict[tuple[int, ...], Any]:
        """What everybody was told, the leases that were given out, and who holds the present one."""
        if self._lease < 0:
            return {}
        told: dict[tuple[int, ...], Any] = {(): [self._lease, self._slot]}
        for row, written in self.timetables.written(self._present).items():
            told[row,] = [*written, row in self._held]
        return told

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:
        """Promises hold as they were made, also those that would not be made again now."""
        self._lease, self._slot = kept.get((), (-1, -1))
        for who, (*written, holds) in ((who, row) for who, row in kept.items() if len(who) == 1):
            self.timetables.read(who[0], written)
            if holds:
                self._held.add(who[0])

    # -- one decision ------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Admit, make the timetable at a lease boundary, then places: leases first."""
        now_s = view.now_s
        lease, slot = lease_at(now_s, self.lease_s), lease_at(now_s, self.slot_s)
        self.timetables.admit(view)
        if lease != self._lease:
            self._held = self.timetables.assign(view, lease)
            self._lease = lease
        turn = slot != self._slot
        self._slot = slot
        self._present = set(view.rows.tolist())
        self._held &= self._present
        holders = np.array(sorted(view.at(row) for row in self._held), np.int64)
        run = self._places(view, holders, turn)
        return Plan(run, next_s=(slot + 1) * self.slot_s, why=self._answers(view, (slot + 1) * self.slot_s))

    def _answers(self, view: View, next_s: float) -> Why:
        """What it was told about its deadline, and which lease is its next; as of now."""
        lease_s, lease = self.lease_s, self._lease
        answers, leases = self.timetables.answers, self.timetables.given()

        def why(row: int) -> str:
            answer, mine = answers[row], leases.get(row, ())
            said = f"{answer.verdict}: {answer.reason}"
            coming = [number for number in mine if number > lease]
            if coming:
                return f"{said}; its next lease begins at {moment(coming[0] * lease_s)}"
            if answer.promised:
                return f"{said}; its leases are given out at {moment((lease + 1) * lease_s)}"
            return f"{said}; GPUs without a lease went to others, and change hands again at {moment(next_s)}"

        return why

    def story(self) -> str:
        """How boundaries were decided."""
        tally = self.timetables.tally
        text = f"{tally.boundaries} lease boundaries"
        if tally.gaps:
            text += f", {len(tally.gaps)} integer programs, {tally.stopped} of them stopped by the clock"
        if tally.left_out:
            text += f"; promises without a lease at a boundary: {tally.left_out}"
        return text

    def _places(self, view: View, holders: Ints, turn: bool) -> dict[int, Slices]:
        """Leases first, where they sit if they can; between slots nobody else is disturbed."""
        board = Room(view)
        run: dict[int, Slices] = {}
        rows, gpus, running = view.rows, view.gpus, view.running
        self._put(view, board, run, holders[np.lexsort((rows[holders], -gpus[holders]))])
        others = np.setdiff1d(np.arange(len(rows)), holders)
        lease_end_s = (self._lease + 1) * self.lease_s
        order, promoted = order_of_spare(view, others, self.timetables, lease_end_s, self._promised_first)
        if not turn:
            order = np.concatenate([order[running[order]], order[~running[order]]])
        self._held |= set(view.rows[promoted].tolist())
        chosen, left = [], board.left
        for at in order.tolist():
            if gpus[at] <= left:
                chosen.append(at)
                left -= int(gpus[at])
            if left <= 0:
                break
        self._put(view, board, run, np.array(chosen, np.int64), search=int(self.number("search")))
        if board.left > 0:  # somebody found no place: whoever comes next may have it
            rest = [at for at in order.tolist() if int(rows[at]) not in run]
            self._put(view, board, run, np.array(rest[:_SECOND_LOOK], np.int64))
        return run

    def _put(self, view: View, board: Room, run: dict[int, Slices], which: Ints, search: int = 0) -> None:
        """Let these jobs keep their places where they can, then find places for the others."""
        moved = []
        for at in which.tolist():
            row = int(view.rows[at])
            place = board.keep(row) if view.running[at] else None
            if place is not None:
                run[row] = place
            elif int(view.gpus[at]) <= board.left:
                moved.append((row, int(view.gpus[at])))
        run.update(place_batch(board, movers_of(board, moved), search))
