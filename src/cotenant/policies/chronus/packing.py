"""Greedy late packing: every job gets its leases from the latest feasible slot backwards.

Whoever earns most comes first, then the largest gangs, then those with the least slack. Late slots first keeps the
present ones for best effort and for jobs that arrive tomorrow. A job that finds no room is helped by a repair: a
soft job that can live with a later step makes room for it (smallest loss first), or the order is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.state import IntMatrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.chronus.rooms import open_slots

_ROUNDS = 8  # how often the order is changed for jobs that found no room


@dataclass(frozen=True, slots=True)
class LeasePairs:
    """(job, deadline step) pairs: job number, GPUs, leases needed, slots in time, value. In step with each other.

    `level` is the line of the room down to which a gang takes (`rooms`); None: the first.
    """

    job: Ints
    gpus: Ints
    need: Ints
    slots: Ints
    value: Floats
    level: Ints | None = None

    def level_of(self, pair: int) -> int:
        """The level of one pair."""
        return 0 if self.level is None else int(self.level[pair])

    def __len__(self) -> int:
        return len(self.job)


@dataclass(slots=True)
class LeasePacking:
    """Pair chosen for each job (-1: none fits) and the slots that it holds, ascending."""

    chosen: Ints
    held: dict[int, Ints]
    free: IntMatrix
    repaired: int = 0

    def value(self, pairs: LeasePairs) -> float:
        """Sum of the values of the chosen pairs."""
        return float(pairs.value[self.chosen[self.chosen >= 0]].sum())


def latest_slots(free: IntMatrix, gpus: int, need: int, slots: int, level: int = 0) -> Ints | None:
    """The latest `need` of the first `slots` slots with room for a gang; None if there are not so many."""
    if slots < need:
        return None
    open_ = open_slots(free, gpus, level, slots)
    return open_[-need:] if len(open_) >= need else None


def pack(pairs: LeasePairs, capacity: Ints | IntMatrix, jobs: int) -> LeasePacking:
    """Pack everybody late, then repair what did not fit."""
    capacity = np.atleast_2d(capacity)
    order = np.lexsort((pairs.job, pairs.slots - pairs.need, -pairs.gpus, -pairs.value))
    best = _pack_in(pairs, capacity, jobs, order)
    urgent = np.zeros(jobs, np.int64)
    for round_ in range(_ROUNDS):
        missing = np.flatnonzero(best.chosen < 0)
        if not len(missing):
            break
        if _lower_somebody(pairs, best, missing.tolist()):
            best.repaired += 1
            continue
        urgent[missing] = round_ + 1
        order = np.lexsort((pairs.job, pairs.slots - pairs.need, -pairs.gpus, -pairs.value, -urgent[pairs.job]))
        other = _pack_in(pairs, capacity, jobs, order)
        if ((other.chosen < 0).sum(), -other.value(pairs)) < ((best.chosen < 0).sum(), -best.value(pairs)):
            other.repaired = best.repaired + 1
            best = other
    return best


def _pack_in(pairs: LeasePairs, capacity: IntMatrix, jobs: int, order: Ints) -> LeasePacking:
    """Each job at its first pair in this order that fits."""
    free = capacity.copy()
    chosen = np.full(jobs, -1, np.int64)
    held: dict[int, Ints] = {}
    job, gpus, need, slots = (column.tolist() for column in (pairs.job, pairs.gpus, pairs.need, pairs.slots))
    for at in order.tolist():
        if chosen[job[at]] >= 0:
            continue
        level = pairs.level_of(at)
        found = latest_slots(free, gpus[at], need[at], slots[at], level)
        if found is not None:
            free[: level + 1, found] -= gpus[at]
            chosen[job[at]] = at
            held[job[at]] = found
    return LeasePacking(chosen, held, free)


def _lower_somebody(pairs: LeasePairs, packing: LeasePacking, missing: list[int]) -> bool:
    """Move one packed soft job to a later step so that a missing job fits; the smallest loss of value wins."""
    for want in missing:
        own = np.flatnonzero(pairs.job == want)
        own = own[np.lexsort((pairs.slots[own], -pairs.value[own]))]
        best: tuple[float, int, int, int] | None = None
        for other in np.flatnonzero(packing.chosen >= 0).tolist():
            now = int(packing.chosen[other])
            later = np.flatnonzero((pairs.job == other) & (pairs.value < pairs.value[now]))
            for step in later[np.argsort(-pairs.value[later], kind="stable")].tolist():
                loss = float(pairs.value[now] - pairs.value[step])
                if best is not None and loss >= best[0]:
                    break
                pick = _swap(pairs, packing, other, now, step, own)
                if pick >= 0:
                    best = (loss, other, step, pick)
        if best is not None:
            _apply_swap(pairs, packing, want, best)
            return True
    return False


def _swap(pairs: LeasePairs, packing: LeasePacking, other: int, now: int, step: int, own: Ints) -> int:
    """Pair of a missing job that fits when another one moves to a later step; -1 if none does."""
    free = packing.free.copy()
    free[: pairs.level_of(now) + 1, packing.held[other]] += pairs.gpus[now]
    for at in own.tolist():
        found = _seek(pairs, free, at)
        if found is None:
            continue
        free[: pairs.level_of(at) + 1, found] -= pairs.gpus[at]
        if _seek(pairs, free, step) is not None:
            return int(at)
        free[: pairs.level_of(at) + 1, found] += pairs.gpus[at]
    return -1


def _seek(pairs: LeasePairs, free: IntMatrix, at: int) -> Ints | None:
    return latest_slots(free, int(pairs.gpus[at]), int(pairs.need[at]), int(pairs.slots[at]), pairs.level_of(at))


def _apply_swap(pairs: LeasePairs, packing: LeasePacking, want: int, best: tuple[float, int, int, int]) -> None:
    _, other, step, pick = best
    now = int(packing.chosen[other])
    packing.free[: pairs.level_of(now) + 1, packing.held[other]] += pairs.gpus[now]
    for job, at in ((want, pick), (other, step)):
        found = _seek(pairs, packing.free, at)
        assert found is not None
        packing.free[: pairs.level_of(at) + 1, found] -= pairs.gpus[at]
        packing.chosen[job], packing.held[job] = at, found
