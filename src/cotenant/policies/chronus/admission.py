"""Admission: may a deadline be promised, and if not, what could be (Chronus, SoCC'21).

A pure function of the room that earlier promises leave in each slot. A deadline is promised when enough leases can be
reserved before it, from the latest slot backwards; otherwise the answer names the earliest end that could be promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cotenant.core.workload import Ints
from cotenant.policies.chronus.packing import latest_slots


class Verdict(StrEnum):
    """What a job with a deadline is told."""

    PROMISED = "promised"  # leases are reserved before its first deadline
    LATE = "promised late"  # before a later step of lower value
    REFUSED = "refused"  # served like best effort; the deadline may still be met by luck
    BEST_EFFORT = "best effort"  # it has no deadline


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job needs: GPUs reserved, leases, and for each deadline step the slots that end in time."""

    gpus: int
    need: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The verdict, which step it promises (-1: none), the end of the earliest promisable slot (-1: never), and why."""

    verdict: Verdict
    step: int
    earliest_slot: int
    reason: str

    @property
    def promised(self) -> bool:
        """Whether some step is promised."""
        return self.step >= 0


def admit(free: Ints, waiting: list[Ask], new: Ask) -> AdmissionAnswer:
    """Answer one job. `free` is the room per slot (the last value holds for ever after); `waiting` are jobs with a
    promise but no slots yet: their promise, the last entry of `slots`, must be kept too."""
    total = int(free.max(initial=0))
    if new.gpus > total:
        return AdmissionAnswer(Verdict.REFUSED, -1, -1, f"it reserves {new.gpus} GPUs, and there are {total}")
    for step, slots in enumerate(new.slots):
        if _all_fit(free, waiting, new, slots):
            if step == 0:
                return AdmissionAnswer(
                    Verdict.PROMISED, 0, slots, f"{new.need} leases are reserved before its deadline"
                )
            return AdmissionAnswer(Verdict.LATE, step, slots, f"only step {step + 1} of {len(new.slots)} can be kept")
    end = earliest_end(free, waiting, new)
    last = max(new.slots, default=0)
    if last < new.need:
        reason = f"it needs {new.need} leases and only {last} end before its last deadline"
    else:
        reason = f"earlier promises leave too few of the {last} leases before its last deadline"
    return AdmissionAnswer(Verdict.REFUSED, -1, end, reason)


def earliest_end(free: Ints, waiting: list[Ask], new: Ask) -> int:
    """Slots until the earliest end that could be promised; -1 if the room never suffices."""
    low, high = new.need - 1, new.need
    limit = len(free) + new.need + sum(ask.need for ask in waiting) + 1
    while not _all_fit(free, waiting, new, high):
        if high >= limit:
            return -1
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if _all_fit(free, waiting, new, middle):
            high = middle
        else:
            low = middle
    return high


def _all_fit(free: Ints, waiting: list[Ask], new: Ask, slots: int) -> bool:
    """Whether a job with so many slots, and everybody who has a promise, can be packed late.

    Largest gangs first, then the least slack, then the latest deadlines.
    """
    if slots < new.need:
        return False
    asks = [(ask.gpus, ask.need, ask.slots[-1]) for ask in waiting] + [(new.gpus, new.need, slots)]
    longest = max(ask[2] for ask in asks)
    room = np.concatenate([free[:longest], np.full(max(longest - len(free), 0), free[-1] if len(free) else 0)])
    for gpus, need, end in sorted(asks, key=lambda ask: (-ask[0], ask[2] - ask[1], -ask[2])):
        found = latest_slots(room, gpus, need, end)
        if found is None:
            return False
        room[found] -= gpus
    return True


def room_after(capacity: int, first: int, plans: list[tuple[int, Ints]], length: int) -> Ints:
    """GPUs left per slot from lease `first` on, after plans of (GPUs, absolute leases)."""
    free = np.full(length, capacity, np.int64)
    for gpus, leases in plans:
        slots = leases[(leases >= first) & (leases < first + length)] - first
        free[slots] -= gpus
    return free


def promised_by_s(answer: AdmissionAnswer, first: int, lease_s: float) -> float:
    """End of the earliest slot that an answer names, in seconds; infinite if there is none."""
    return float("inf") if answer.earliest_slot < 0 else (first + answer.earliest_slot) * lease_s
