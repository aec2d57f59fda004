"""What an objective gets to see, and what it answers: jobs x pools of GPUs, in arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class Problem:
    """n jobs and K pools (a pool is one GPU type of one partition). All beliefs, at one moment.

    `rates` are seconds of work per second of the whole gang in each pool, 0 where the job cannot run;
    `left_s` is work left, `age_s` time since submission, `isolated_s` what the work done so far would have
    taken on an equal share of the cluster (Themis' measure). `pair[a, b, k]` is the rate of a job of kind a
    beside one of kind b in pool k, 0 where the two cannot share.
    """

    now_s: float
    rates: Matrix
    gangs: Ints
    weights: Floats
    capacity: Floats
    left_s: Floats
    age_s: Floats
    isolated_s: Floats
    steps_per_s: Floats  # raw steps per second of work; 1 where not known
    deadline_s: Floats  # on the clock of `now_s`; NaN without one
    tenant: Ints
    prices: Floats  # money per GPU-hour, by pool
    kind: Ints
    pool_types: tuple[str, ...] = ()
    pair: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.gangs)

    @property
    def proportional(self) -> Floats:
        """Rate of each job if it ran in every pool in proportion to its size."""
        return np.asarray(self.rates @ (self.capacity / max(self.capacity.sum(), 1.0)))

    @property
    def isolated(self) -> Matrix:
        """Time fractions of each job if the cluster were split evenly among all of them."""
        share = self.capacity[None, :] / (len(self) * self.gangs[:, None])
        return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])

    @property
    def isolated_rate(self) -> Floats:
        """Rate of each job on its even share."""
        return np.asarray((self.rates * self.isolated).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Targets:
    """Time fractions: `x[j, k]` of job j alone in pool k, `pair_x[p, k]` of the jobs `pairs[p]` together."""

    x: Matrix
    pairs: IntMatrix = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    pair_x: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    note: str = ""  # how it was found, and how good it is
