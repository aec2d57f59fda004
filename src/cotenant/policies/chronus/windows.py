"""Leases in a row on named nodes, for jobs that cannot be stopped and moved without losing what they have done.

Who cannot save, may not be stopped, or can use some of the nodes only, is promised one window: so many leases one
after the other, and the GPUs of certain nodes in them. It is not stopped before its end then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Slices
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.placement.room import Room
from cotenant.policies.chronus.admission import AdmissionAnswer, Ask, Verdict, promise_of, refusal_of
from cotenant.policies.chronus.leases import HEAD_ROOM, NEVER, in_words, lease_at, leases_needed, next_lease
from cotenant.policies.chronus.promises import Promise, PromiseTable
from cotenant.policies.chronus.rooms import Slots

_TRIALS = 400  # windows that are looked at for one answer
_ASKING_S = 10.0  # from a submission until it is answered, if others take their time


class LeaseWindows:
    """The windows of a table."""

    def __init__(self, table: PromiseTable) -> None:
        self._table = table

    def ask(self, view: View, row: int, ask: Ask, first: int) -> AdmissionAnswer:
        """Answer a job that is bound to where it begins, and reserve its window if it is promised one."""
        at = view.at(row)
        gpus, there = int(view.gpus[at]), int(self._table.blocks(view).nodes.sum())
        if gpus > there:
            return AdmissionAnswer(Verdict.REFUSED, -1, -1, f"it asks for {gpus} GPUs, and there are {there}")
        need = self._need(view, at)
        ask = replace(ask, need=need)
        if need >= NEVER:
            return refusal_of(ask, -1)
        if (goes_on := self._stay(view, row, ask)) is not None:
            return goes_on
        length = self._table.length_of(first, *ask.slots) + need
        slots = self._table.slots(view, first, length, plans=True)
        free, beside = self._quota(view, row, first, length), self._beside()
        due_s = view.steps.take(np.array([at])).time_s[0]
        now = self._at_once(view, row)
        for step, end in enumerate(ask.slots):
            found = find_window(view, slots, row, need, end, free, beside)
            if found is not None:
                return self._reserve(view, row, ask, step, first + np.arange(found[0], found[0] + need), found[1])
            if now is not None and now[0] <= due_s[self._table.column_of(view, row, step)]:
                return self._begin(view, row, ask, step, *now)
        found = find_window(view, slots, row, need, length, free, beside, latest=False)
        refusal = refusal_of(ask, -1 if found is None else found[0] + need)
        return refusal if now is None else replace(refusal, by_s=now[0] + _ASKING_S)

    def _takes_s(self, view: View, at: int) -> float:
        """Seconds from the moment at which a job is to have its GPUs to its end, with some reserve."""
        bonds = view.facts.bonds
        begin_s = 0.0 if view.running[at] else float(view.restore_s[at]) + (bonds.handover_s if bonds else 0.0)
        return HEAD_ROOM * float(self._table.left_s(view, np.array([at]))[0]) + begin_s

    def _need(self, view: View, at: int) -> int:
        """Leases in a row that a job needs from a start on, or from now on if it runs."""
        return int(min(leases_needed(np.array(self._takes_s(view, at)), self._table.lease_s), NEVER))

    def _at_once(self, view: View, row: int) -> tuple[float, Ints, Slices] | None:
        """When a job would end that begins now, in the middle of a lease, with its leases and its place."""
        lease_s, end_s = self._table.lease_s, view.now_s + self._takes_s(view, view.at(row))
        lease = lease_at(view.now_s, lease_s)
        need = min(next_lease(end_s, lease_s) - lease, NEVER)
        slots = self._table.slots(view, lease, self._table.length_of(lease, need), plans=True)
        found = find_window(view, slots, row, need, need, self._quota(view, row, lease, len(slots)), self._beside())
        return None if found is None else (end_s, lease + np.arange(need), found[1])

    def _begin(
        self, view: View, row: int, ask: Ask, step: int, end_s: float, leases: Ints, place: Slices
    ) -> AdmissionAnswer:
        column, end = self._table.column_of(view, row, step), int(leases[-1]) + 1
        self._table.promises[row] = Promise(ask.gpus, end, len(leases), column, leases, False, place)
        reason = f"its GPUs are reserved for it from now on, for {in_words(end_s - view.now_s)}"
        return AdmissionAnswer(Verdict.LATE if step else Verdict.PROMISED, step, -1, reason, by_s=end_s)

    def _reserve(self, view: View, row: int, ask: Ask, step: int, leases: Ints, place: Slices) -> AdmissionAnswer:
        end = next_lease(view.now_s, self._table.lease_s) + ask.slots[step]
        self._table.promises[row] = Promise(
            ask.gpus, end, ask.need, self._table.column_of(view, row, step), leases, False, place
        )
        return promise_of(step, ask.slots[step], ask, ())

    def _stay(self, view: View, row: int, ask: Ask) -> AdmissionAnswer | None:
        """A job that runs already is promised to go on where it is, if it can."""
        place, now = view.placement(row), lease_at(view.now_s, self._table.lease_s)
        step = next((k for k, end in enumerate(ask.slots) if end >= ask.need), -1)
        slots = self._table.slots(view, now, self._table.length_of(now, *ask.slots), plans=True)
        end = next_lease(view.now_s, self._table.lease_s) + ask.need
        if not place or step < 0 or not slots.allows(place, 0, end - now):
            return None
        return self._reserve(view, row, ask, step, np.arange(now, end), place)

    def _quota(self, view: View, row: int, first: int, length: int) -> Ints:
        """GPUs of its guarantee that the tenant of a job has left in each slot."""
        tenant, tenants = int(view.tenant[view.at(row)]), view.tenant
        left = np.full(length, int(view.site.quota[tenant, col.Q_GUARANTEED]), np.int64)
        for other, one in self._table.promises.items():
            if other != row and tenants[view.at(other)] == tenant:
                mine = one.leases[(one.leases >= first) & (one.leases < first + length)] - first
                left[mine] -= int(view.gpus[view.at(other)])
        return left

    def _beside(self) -> list[tuple[int, Slices, Ints]]:
        return [(row, one.place, one.leases) for row, one in self._table.promises.items() if one.place]

    def bring_forward(self, view: View, row: int, lease: int, place: Slices) -> bool:
        """Let a window begin now, at this place, if everybody else keeps theirs; whether it does.

        What is left of the present lease is extra.
        """
        promise = self._table.promises[row]
        need = self._need(view, view.at(row)) + next_lease(view.now_s, self._table.lease_s) - lease
        slots = self._table.slots(view, lease, self._table.length_of(lease, need), plans=True, but=row)
        if not slots.allows(place, 0, min(need, len(slots))):
            return False
        promise.leases, promise.place = np.arange(lease, lease + need), place
        return True

    def may_stay(self, view: View, row: int, lease: int, place: Slices) -> bool:
        """Whether a job that nobody may stop can have a place for good: all promises are kept without it."""
        slots = self._table.slots(view, lease, self._table.length_of(lease), plans=True, but=row)
        return slots.allows(place, 0, len(slots))

    def holders(self, view: View, lease: int) -> set[int]:
        """Who is in its window now. One that runs over goes on while that takes nothing from others; one that could
        not begin when it was to is given a later window, if there is one in time."""
        held = set()
        for row, promise in self._table.promises.items():
            if not promise.place:
                continue
            runs, begun = bool(view.running[view.at(row)]), int(promise.leases[0]) < lease
            if begun and not runs:
                self._begin_later(view, row, promise, lease)
            elif runs and int(promise.leases[-1]) < lease:
                slots = self._table.slots(view, lease, self._table.length_of(lease), plans=True, but=row)
                if slots.allows(promise.place, 0, 1):
                    promise.leases = np.append(promise.leases, lease)
            if (promise.leases == lease).any():
                held.add(row)
        return held

    def _begin_later(self, view: View, row: int, promise: Promise, lease: int) -> None:
        need, length = self._need(view, view.at(row)), self._table.length_of(lease)
        slots = self._table.slots(view, lease, length, plans=True, but=row)
        free, beside = self._quota(view, row, lease, length), [one for one in self._beside() if one[0] != row]
        found = find_window(view, slots, row, need, promise.end - lease, free, beside)
        if found is not None:
            promise.leases, promise.place = lease + np.arange(found[0], found[0] + need), found[1]


def is_bound(view: View, which: Ints) -> np.ndarray:
    """Whether each job can be promised a window only: it is not free to stop and to go on anywhere."""
    bonds, site = view.facts.bonds, view.site
    bound = (view.rates[which] <= 0).any(axis=1) | (view.parts[which] > 0)
    bound |= site.quota[view.tenant[which], col.Q_GUARANTEED] < view.cluster_gpus
    if site.hosts_bind:
        bound |= (view.cpus[which] > 0) | (view.mem_gib[which] > 0)
    return bound if bonds is None else bound | bonds.loses[view.rows[which]]


def find_window(
    view: View, slots: Slots, row: int, need: int, end: int, free: Ints,
    beside: Iterable[tuple[int, Slices, Ints]] = (), *, latest: bool = True,
) -> tuple[int, Slices] | None:  # fmt: skip
    """Where a window of `need` slots begins that ends by slot `end`, and on which nodes; None if there is none.

    `free` is what the tenant may have in each slot; `beside` are windows of others as (row, place, leases).
    """
    gpus = int(view.gpus[view.at(row)])
    end = min(end, len(slots))
    open_ = (np.maximum(slots.free[:, :end], 0).sum(axis=0) >= gpus) & (free[:end] >= gpus)
    closed = np.concatenate([[0], np.cumsum(~open_)])
    begins = np.flatnonzero(closed[need:] == closed[: max(len(closed) - need, 0)]) if end >= need else np.zeros(0, int)
    for begin in (begins[::-1] if latest else begins)[:_TRIALS].tolist():
        place = _place(view, slots, row, gpus, begin, begin + need, beside)
        if place is not None:
            return begin, place
    return None


def _place(
    view: View, slots: Slots, row: int, gpus: int, begin: int, end: int, beside: Iterable[tuple[int, Slices, Ints]]
) -> Slices | None:
    """The nodes for a gang in these slots, as few as it needs."""
    board = Room(view)
    if view.site.hosts_bind:
        for other, place, leases in beside:
            if ((leases >= slots.first + begin) & (leases < slots.first + end)).any():
                board.claim(other, place)
    board.free = np.maximum(slots.free[:, begin:end].min(axis=1), 0)
    board.left = int(board.free.sum())
    board.quota[board.tenant(row)] = board.left
    place = board.find(row, gpus)
    if place is None or len(place) > max(board.parts(row), -(-gpus // view.site.largest_node)):
        return None
    return place if slots.allows(place, begin, end) else None
