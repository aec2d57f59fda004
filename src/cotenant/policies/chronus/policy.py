"""Chronus: a timetable of leases for jobs with deadlines; everybody else fills what the leases leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from cotenant.core import columns as col
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
from cotenant.policies.deadline_answer import PROMISED, REFUSED, DeadlineAnswer

_SECOND_LOOK = 256  # jobs
_DAY_S, _MORNING_S = 86400.0, 28800.0


class Chronus(PlanPolicy):
    """Deadlines kept by leases: admission, a timetable per lease, best effort in between."""

    name = "chronus"
    source = "Gao et al., SoCC'21"
    promises: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Value]] = {
        "lease": 1200.0,  # seconds; a job that holds a lease is not disturbed until its end
        "slot": 300.0,  # seconds; jobs without a lease may change places so often
        "solver": "greedy",  # or milp
        "objective": "adaptive",  # use of the present lease: minimise, maximise, or by whether somebody was refused
        "budget": 2.0,  # seconds that the integer program may take
        "spare": "promised",  # or best-effort: who comes first on GPUs without a lease
        "search": 0,  # combinations of splits that the placement of jobs without a lease may try
        "profiling": 0.0,  # seconds after its submission in which a job is looked at, and neither answered nor run
        "night": False,  # from 0 to 8 o'clock nobody starts on an idle node unless a lease needs it
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
        if not self.number("profiling") >= 0:
            raise InputError(f"policy 'chronus': profiling={self.params['profiling']} must be 0 seconds or more")
        if (
            not self.slot_s > 0
            or not self.lease_s > 0
            or abs(self.lease_s / self.slot_s - round(self.lease_s / self.slot_s)) > 1e-9
        ):
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
            released=quirks.get("admission") == "new_only",
        )
        self._lease, self._slot = -1, -1
        self._nodes: tuple[int, ...] = ()  # by which windows are known again
        self._held: set[int] = set()  # rows of jobs that hold the present lease
        self._promoted: set[int] = set()  # and of those that may end within it, though they were refused
        self._present: set[int] = set()  # rows of the last decision

    # -- what outlives a crash ---------------------------------------------------------------------------------

    def remember(self) -> dict[tuple[int, ...], Any]:
        """What everybody was told, the leases that were given out, and who holds the present one."""
        if self._lease < 0:
            return {}
        told: dict[tuple[int, ...], Any] = {(): [self._lease, self._slot, self.timetables.refused, list(self._nodes)]}
        for row, written in self.timetables.table.written(self._present).items():
            told[row,] = [*written, (row in self._held) + 2 * (row in self._promoted)]
        return told

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:
        """Promises hold as they were made, also those that would not be made again now."""
        self._lease, self._slot, *more = kept.get((), (-1, -1))
        if more:
            self.timetables.refused, self._nodes = more[0], tuple(more[1])
        for who, (*written, holds) in ((who, row) for who, row in kept.items() if len(who) == 1):
            self.timetables.table.read(who[0], written)
            if holds:
                (self._held if holds == 1 else self._promoted).add(who[0])

    def deadline_answers(self) -> dict[int, DeadlineAnswer]:
        """What every job with a deadline that is here was told, by row."""
        answers = self.timetables.table.answers
        return {row: self._told(row) for row in self._present if row in answers and answers[row].at_s}

    def _told(self, row: int) -> DeadlineAnswer:
        answer = self.timetables.table.answers[row]
        verdict = PROMISED if answer.promised else REFUSED
        return DeadlineAnswer(verdict, answer.reason, answer.at_s, answer.by_s, answer.step)

    # -- one decision ------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Plan:
        """Admit, make the timetable at a lease boundary, then places: leases first."""
        now_s, tables = view.now_s, self.timetables
        lease, slot = lease_at(now_s, self.lease_s), lease_at(now_s, self.slot_s)
        self._see_nodes(view)
        looked_at = view.submit_s + self.number("profiling") > now_s
        tables.admit(view, looked_at)
        if lease != self._lease:
            self._held, self._promoted = tables.assign(view, lease), set()
            self._lease = lease
        tables.note_refused(view.rows)
        turn = slot != self._slot
        self._slot = slot
        self._present = set(view.rows.tolist())
        self._held = (self._held | tables.table.windows(lease).keys()) & self._present
        self._promoted = (self._promoted & self._present) - self._held
        run = self._places(view, turn, looked_at)
        known_s = float((view.submit_s[looked_at] + self.number("profiling")).min(initial=np.inf))
        next_s = (slot + 1) * self.slot_s
        return Plan(run, next_s=min(next_s, known_s), why=self._answers(view, next_s))

    def _see_nodes(self, view: View) -> None:
        """Windows are on nodes by number: where these are others now, they are looked for anew."""
        nodes = tuple(view.site.node[:, col.NODE_SIZE].tolist())
        if self._nodes not in ((), nodes):
            self.timetables.table.leave_nodes()
        self._nodes = nodes

    def _answers(self, view: View, next_s: float) -> Why:
        """What it was told about its deadline, and which lease is its next; as of now."""
        lease_s, lease = self.lease_s, self._lease
        answers, leases = self.timetables.table.answers, self.timetables.table.given()

        def why(row: int) -> str:
            if row not in answers:
                return "it was submitted just now, and how long it takes is being found out"
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

    def _places(self, view: View, turn: bool, looked_at: np.ndarray) -> dict[int, Slices]:
        """Leases first, where they sit if they can; between slots nobody else is disturbed."""
        board = Room(view)
        run: dict[int, Slices] = {}
        rows, running = view.rows, view.running
        self._put_holders(view, board, run)
        self._put(view, board, run, self._by_size(view, self._promoted))
        bound = {row for row, one in self.timetables.table.promises.items() if one.place and row not in self._held}
        others = np.setdiff1d(np.flatnonzero(~looked_at), view.at_rows(np.array([*run, *bound], np.int64)))
        self._close_at_night(view, board)
        if turn and self._promised_first:
            self._bring_forward(view, board, run, bound)
        lease_end_s = (self._lease + 1) * self.lease_s
        order, promoted = order_of_spare(view, others, self.timetables.table, lease_end_s, self._promised_first)
        if not turn:
            order = np.concatenate([order[running[order]], order[~running[order]]])
        chosen = self._chosen(view, board, run, order)
        self._put(view, board, run, chosen, search=int(self.number("search")))
        if board.left > 0:  # somebody found no place: whoever comes next may have it
            rest = [at for at in order.tolist() if int(rows[at]) not in run and not self._stays(view, int(rows[at]))]
            self._put(view, board, run, np.array(rest[:_SECOND_LOOK], np.int64))
        self._promoted |= set(rows[promoted].tolist()) & run.keys()
        self._bring_forward(view, board, run, bound - run.keys())
        return run

    def _put_holders(self, view: View, board: Room, run: dict[int, Slices]) -> None:
        """Those in their windows where these are, then the other holders of the lease: in place where they can, but
        all of them and at full speed, for which some may have to move."""
        for row, place in self.timetables.table.windows(self._lease).items():
            if row in self._held and all(board.room_on(row, node) >= gpus for node, gpus in place):
                run[row] = board.claim(row, place)
        holders = self._by_size(view, self._held - run.keys())
        with board.trial():
            tried = dict(run)
            self._put(view, board, tried, holders)
            kept = all(_is_good(board, int(view.rows[at]), tried) for at in holders.tolist())
        if kept:
            run |= {row: board.claim(row, place) for row, place in tried.items() if row not in run}
            return
        for at in holders.tolist():
            row = int(view.rows[at])
            if (found := board.find(row, int(view.gpus[at]))) is not None:
                run[row] = found

    def _close_at_night(self, view: View, board: Room) -> None:
        """Nodes that are idle and that no lease needs stay so, that they may sleep."""
        if not self.params["night"] or view.now_s % _DAY_S >= _MORNING_S:
            return
        size = view.site.node[:, col.NODE_CAP]
        idle = (board.free == size) & (view.node_free_gpus == size)
        board.left -= int(board.free[idle].sum())
        board.free[idle] = 0

    @staticmethod
    def _by_size(view: View, rows: set[int]) -> Ints:
        """Places of rows in the view, largest gangs first."""
        found = np.array(sorted(view.at(row) for row in rows), np.int64)
        return found[np.lexsort((view.rows[found], -view.gpus[found]))]

    def _chosen(self, view: View, board: Room, run: dict[int, Slices], order: Ints) -> Ints:
        """Those of the others who fit, in order. Who may never be stopped starts only where no promise needs it."""
        chosen: list[int] = []
        left, gpus = board.left, view.gpus
        for at in order.tolist():
            row = int(view.rows[at])
            if gpus[at] > left:
                continue
            if self._stays(view, row):
                with board.trial():
                    place = board.find(row, int(gpus[at]))
                if place is None or not self.timetables.windows.may_stay(view, row, self._lease, place):
                    continue
                run[row] = board.claim(row, place)
            else:
                chosen.append(at)
            left -= int(gpus[at])
            if left <= 0:
                break
        return np.array(chosen, np.int64)

    @staticmethod
    def _stays(view: View, row: int) -> bool:
        """Whether nobody may stop a job once it runs."""
        bonds = view.facts.bonds
        return bonds is not None and bool(bonds.stays[row])

    def _bring_forward(self, view: View, board: Room, run: dict[int, Slices], bound: set[int]) -> None:
        """Windows that can begin now do: GPUs are left, and everybody else keeps what was promised."""
        for at in self._by_size(view, bound).tolist():
            row = int(view.rows[at])
            if int(view.gpus[at]) > board.left:
                continue
            with board.trial():
                place = board.keep(row) if view.running[at] else board.find(row, int(view.gpus[at]))
            if place is not None and self.timetables.windows.bring_forward(view, row, self._lease, place):
                run[row] = board.claim(row, place)
                self._held.add(row)

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


def _is_good(board: Room, row: int, run: dict[int, Slices]) -> bool:
    """Whether a job has a place, and is no slower there than elsewhere for being split over nodes."""
    place = run.get(row)
    if place is None:
        return False
    if len(place) == 1:
        return True
    gpus = sum(taken for _, taken in place)
    (mover,) = movers_of(board, [(row, gpus)])
    return len(place) <= -(-gpus // board.site.largest_node) or mover.apart >= 1.0
