"""Admission: may a deadline be promised, and if not, what could be (Chronus, SoCC'21).

A pure function of the room that earlier promises leave in each slot. A deadline is promised when enough leases can be
reserved before it, from the latest slot backwards; otherwise the answer names the earliest end that could be promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cotenant.core.state import IntMatrix
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
    level: int = 0  # line of the room down to which it takes


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """The verdict, which step it promises (-1: none), the end of the earliest promisable slot (-1: never), and why.

    It was given at `at_s`, and `by_s` is the end of that slot on the clock (0: there is none). `plan` are the slots
    that make the promise: those of everybody who waits, then its own.
    """

    verdict: Verdict
    step: int
    earliest_slot: int
    reason: str
    at_s: float = 0.0
    by_s: float = 0.0
    plan: tuple[Ints, ...] = field(default=(), compare=False)

    @property
    def promised(self) -> bool:
        """Whether some step is promised."""
        return self.step >= 0


def admit(free: Ints | IntMatrix, waiting: list[Ask], new: Ask) -> AdmissionAnswer:
    """Answer one job. `free` is the room per slot (the last value holds for ever after); `waiting` are jobs with a
    promise whose slots may still be others: their promise, the last entry of `slots`, must be kept too."""
    room = np.atleast_2d(free)
    total = int(room[0].max(initial=0))
    if new.gpus > total:
        return AdmissionAnswer(Verdict.REFUSED, -1, -1, f"it reserves {new.gpus} GPUs, and there are {total}")
    for step, slots in enumerate(new.slots):
        plan = _packed(room, waiting, new, slots)
        if plan is not None:
            return promise_of(step, slots, new, plan)
    return refusal_of(new, earliest_end(room, waiting, new))


def promise_of(step: int, slots: int, new: Ask, plan: tuple[Ints, ...]) -> AdmissionAnswer:
    """The deadline of this step, which leaves so many slots, is promised."""
    leases = f"{new.need} {'lease is' if new.need == 1 else 'leases are'} reserved before its"
    if step == 0:
        return AdmissionAnswer(Verdict.PROMISED, 0, slots, f"{leases} deadline", plan=plan)
    only = f"only step {step + 1} of {len(new.slots)} can be kept: {leases} deadline"
    return AdmissionAnswer(Verdict.LATE, step, slots, only, plan=plan)


def refusal_of(new: Ask, earliest: int) -> AdmissionAnswer:
    """Nothing is promised; `earliest` is the slot by whose end it could be."""
    last = max(new.slots, default=0)
    if last < new.need:
        reason = f"it needs {new.need} leases and only {last} end before its last deadline"
    else:
        reason = f"earlier promises leave too few of the {last} leases before its last deadline"
    return AdmissionAnswer(Verdict.REFUSED, -1, earliest, reason)


def earliest_end(free: Ints | IntMatrix, waiting: list[Ask], new: Ask) -> int:
    """Slots until the earliest end that could be promised; -1 if the room never suffices. In few trials."""
    room = np.atleast_2d(free)
    low, high = new.need - 1, new.need
    limit = room.shape[1] + new.need + sum(ask.need for ask in waiting) + 1
    while _packed(room, waiting, new, high) is None:
        if high >= limit:
            return -1
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if _packed(room, waiting, new, middle) is not None:
            high = middle
        else:
            low = middle
    return high


def _packed(free: IntMatrix, waiting: list[Ask], new: Ask, slots: int) -> tuple[Ints, ...] | None:
    """The slots of everybody who waits and of a job with so many slots, all packed late; None if they do not fit.

    Largest gangs first, then the least slack, then the latest deadlines.
    """
    if slots < new.need:
        return None
    asks = [*waiting, Ask(new.gpus, new.need, (slots,), new.level)]
    longest = max(ask.slots[-1] for ask in asks)
    rest = np.repeat(free[:, -1:], max(longest - free.shape[1], 0), axis=1)
    room = np.concatenate([free[:, :longest], rest], axis=1)
    plan = [np.zeros(0, np.int64)] * len(asks)
    order = sorted(
        range(len(asks)), key=lambda k: (-asks[k].gpus, asks[k].slots[-1] - asks[k].need, -asks[k].slots[-1])
    )
    for k in order:
        ask = asks[k]
        found = latest_slots(room, ask.gpus, ask.need, ask.slots[-1], ask.level)
        if found is None:
            return None
        room[: ask.level + 1, found] -= ask.gpus
        plan[k] = found
    return tuple(plan)


def promised_by_s(answer: AdmissionAnswer, first: int, lease_s: float) -> float:
    """End of the earliest slot that an answer names, in seconds; infinite if there is none."""
    return float("inf") if answer.earliest_slot < 0 else (first + answer.earliest_slot) * lease_s
