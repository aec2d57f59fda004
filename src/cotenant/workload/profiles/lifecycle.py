"""How long jobs of each kind take to come and to go, as far as a profile knows; the simulator charges it, and the
service believes it until it has measured such jobs itself.

start: from the launch to the first finished step. save: from the request to leave until the GPUs are free. restore:
loading a checkpoint. suspend, resume: the driver takes the job off its GPUs and puts it back. exit: from the last step
until the process has ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class LifecycleRow:
    """Of one kind, seconds; NaN where nobody has measured it."""

    start_s: float = math.nan
    save_s: float = math.nan
    restore_s: float = math.nan
    suspend_s: float = math.nan
    resume_s: float = math.nan
    exit_s: float = math.nan


UNKNOWN = LifecycleRow()
_CLEARLY, _BOUND_S = 1.25, 1.0  # what a suspension must be better by: it keeps memory, and binds a job to its GPUs
NAMES = tuple(one.name for one in fields(LifecycleRow))


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Of all kinds of a profile, seconds by kind; NaN where nobody has measured it."""

    start_s: Floats
    save_s: Floats
    restore_s: Floats
    suspend_s: Floats
    resume_s: Floats
    exit_s: Floats

    @classmethod
    def of_rows(cls, rows: Sequence[LifecycleRow]) -> Lifecycle:
        """One row per kind."""
        table = np.array([astuple(row) for row in rows], np.float64).reshape(-1, len(NAMES))
        return cls(*(np.ascontiguousarray(column) for column in table.T))

    def row(self, kind: int) -> LifecycleRow:
        """What is known of one kind."""
        return LifecycleRow(*(float(getattr(self, name)[kind]) for name in NAMES))

    def take(self, kinds: Ints) -> Lifecycle:
        """The same for a selection of kinds, or for jobs by their kinds."""
        return Lifecycle(*(getattr(self, name)[kinds] for name in NAMES))


def better_suspended(of: Lifecycle | LifecycleRow) -> NDArray[np.bool_]:
    """Whether suspending costs clearly less, until the job is back at work, than saving and starting again."""
    anew_s = of.save_s + of.start_s + of.restore_s
    return np.asarray(_CLEARLY * (of.suspend_s + of.resume_s) + _BOUND_S < anew_s)
