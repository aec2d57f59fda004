"""What was promised to whom, and what that leaves: the table that Chronus keeps. Remembers jobs by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Slices
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.chronus.admission import AdmissionAnswer, Verdict
from cotenant.policies.chronus.leases import MOST_SLOTS, estimate_s, leases_for, leases_needed, next_lease
from cotenant.policies.chronus.rooms import Blocks, Slots

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


class PromiseTable:
    """Answers and promises by row. `released`: GPUs and leases are counted as in the authors' simulator."""

    def __init__(self, lease_s: float, released: bool) -> None:
        self.lease_s, self.released = lease_s, released
        self.answers: dict[int, AdmissionAnswer] = {}
        self.promises: dict[int, Promise] = {}
        self.asked: dict[int, Asked] = {}  # to what a live job got its answer

    def is_promised(self, ids: Ints) -> np.ndarray:
        """Whether each job has a promise."""
        return np.fromiter((row in self.promises for row in ids.tolist()), bool, len(ids))

    def given(self) -> dict[int, Ints]:
        """Row -> leases that are reserved; arrays that are replaced, never changed."""
        return {row: promise.leases for row, promise in self.promises.items()}

    def windows(self, lease: int) -> dict[int, Slices]:
        """Jobs whose window covers a lease, and where."""
        return {row: one.place for row, one in self.promises.items() if one.place and (one.leases == lease).any()}

    def forget(self, view: View) -> None:
        """Jobs that are gone need no leases; a window on a node that is no more has to be looked for anew."""
        there, bonds = set(view.rows.tolist()), view.facts.bonds
        shut = set(np.flatnonzero(view.site.node[:, col.NODE_CAP] == 0).tolist() if bonds is None else bonds.shut)
        for row, promise in list(self.promises.items()):
            if row not in there or (promise.place and any(node in shut for node, _ in promise.place)):
                del self.promises[row]

    def leave_nodes(self) -> None:
        """The nodes are others: windows are to be looked for anew."""
        self.promises = {row: one for row, one in self.promises.items() if not one.place}

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
        return gpus, leases_for(self.left_s(view, which), view.restore_s[which], self.lease_s)

    @staticmethod
    def left_s(view: View, which: Ints) -> Floats:
        """Seconds that jobs still take at most, wherever they run."""
        left_s, bonds = view.remaining_s[which], view.facts.bonds
        if bonds is not None:
            left_s = np.maximum(left_s, bonds.reserve_s[view.rows[which]] - view.progress_s[which])
        return left_s / slowest(view, which)

    def length_of(self, first: int, *ends: int) -> int:
        """Slots from lease `first` on until everything that is known is over, and one more."""
        last = max((int(p.leases[-1]) + 1 for p in self.promises.values() if len(p.leases)), default=first)
        due = max((p.end for p in self.promises.values()), default=first)
        return min(max(last - first, due - first, *ends, 1), 2 * MOST_SLOTS) + 1

    @staticmethod
    def column_of(view: View, row: int, step: int) -> int:
        """Which of the steps of a job is the so manieth that is worth something."""
        return int(np.flatnonzero(view.steps.take(np.array([view.at(row)])).value[0] > 0)[step])


def slowest(view: View, which: Ints) -> Floats:
    """Seconds of work per second that each job makes at least, wherever its GPUs are."""
    rates = view.rates[which]
    least = np.where(rates > 0, rates, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 1.0)
