"""What the engine decides, as a value: exact transitions, when to look again, and the reason of whoever is refused.

And what happens in the world, for the engine to take in. Rows are jobs of the engine's tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np

from cotenant.core.plan import ALONE, Places, Terms


class Change(StrEnum):
    """Kinds of transitions. A stop is carried out by the ladder of rungs: save and leave, or be ended."""

    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESUME = "resume"  # a suspended job goes on, on its own GPUs
    END = "end"  # a suspended job is ended: its GPUs are not to be had
    PROMISE = "promise"  # it has these GPUs as soon as others have left them
    WITHDRAW = "withdraw"  # and now it has not
    RESIZE = "resize"
    TERMS = "terms"


CHANGES = tuple(Change)
"""By the numbers that kernels write (`T_START`, ...)."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of one job, with the exact GPUs: (node, GPUs, mask of the node's GPUs) of whoever starts or moves.

    `moved`: 1 for the stop of a job that goes on elsewhere as soon as it can, 2 where it goes on with another size, 3
    where it makes room for another's turn. `gain_s` and `cost_s` are what the stop gains and costs, as weighed by the
    order that makes it: infinite where an owner's priority decides, NaN where nobody weighs.
    """

    change: Change
    row: int
    places: Places = ()
    terms: Terms = ALONE
    moved: int = 0
    gain_s: float = field(default=np.nan, compare=False)
    cost_s: float = field(default=np.nan, compare=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """All of one step, in the order in which it is to be carried out. `next_s` is when to look again at the latest."""

    at_s: float
    transitions: tuple[Transition, ...] = ()
    next_s: float = np.inf
    asked: bool = False  # whether the policy was asked at all
    why: Callable[[int], str] = field(default=lambda row: "", compare=False)


class Kind(IntEnum):
    """What can happen, in the order in which things of one moment are taken in: ends, then nodes, then arrivals."""

    OVER = 0  # its process is gone, and the job has come to its end
    AGAIN = 1  # its process is gone, and the job waits again
    LEFT = 2  # it has left the GPUs that it still held
    STANDS = 3  # it stands still, bound to the GPUs that it had
    WITHDRAWN = 4  # it may not run now
    SHUT = 5  # nothing may start on a node (`at` is a node here and in OPEN)
    OPEN = 6
    PINNED = 7  # it may not be stopped
    LOOSE = 8  # it may be stopped again
    ADOPTED = 9  # it is found running
    ARRIVED = 10  # it begins to wait
    ADOPTED_STILL = 11  # it is found standing still
    ENDING = 12  # it stood still and is being ended: it begins anew once it is gone
    PROMISED = 13  # it was promised GPUs
    CHANGED = 14  # what it is sorted by has changed


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job (or node) `at`."""

    kind: Kind
    at: int
    places: Places = ()
    since_s: float = np.nan
    lost_s: float = 0.0  # of its work, at speed 1
