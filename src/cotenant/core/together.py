"""What is known of jobs that share GPUs, by kind: the vocabulary of sharing policies and of the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints

LEVELS = 8  # sub-batches: the whole batch, a half, a quarter, ... of it
CURVE = np.array([0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
"""Parts of a job's memory need at which memory curves have their points."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a predictor says of kinds that it has not seen run, by kind; NaN where it knows nothing."""

    busy: Floats
    memory_gib: Floats


@dataclass(frozen=True, slots=True)
class Together:
    """Speeds and memory of kinds of jobs in company. A gang moves at its slowest GPU.

    `ratio[a, b, type]`: speed of a beside b on one GPU against alone; 0 where the two cannot share.
    `pace[a, level]`: speed with 2**level accumulated sub-batches against the whole batch; 0 where not possible.
    `memory_gib[a, level]`: GiB per GPU at that sub-batch; 0 where not known. `busy[a]`: share of time in which it
    keeps its GPUs busy when alone. `curve[a]`: speed when only a part (`CURVE`) of its memory may lie on the GPU.
    `eased[a, level]`: part of what the two of a pair lose to each other that is left when a's batch is cut so.

    For those who do not know the table: `guess` is `ratio` by a formula from what kinds do alone, `alike[a]` a number
    that kinds share which run alike in company (one model on different GPU counts). `nearby[a, b]` is the speed of a
    while b runs on other GPUs of its server (they share links and cores); None: that does not matter.
    """

    ratio: NDArray[np.float64]
    pace: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    busy: Floats
    gpu_gib: Floats  # GPU type -> GiB; infinity where not known
    curve: NDArray[np.float64]
    guess: NDArray[np.float64] | None = None
    alike: Ints | None = None
    predicted: Predicted | None = None
    nearby: NDArray[np.float64] | None = None
    eased: NDArray[np.float64] | None = None  # None: all of it

    @classmethod
    def of_ratio(cls, ratio: NDArray[np.float64], curve: NDArray[np.float64], **known: Any) -> Together:
        """Of kinds whose batch is never cut; busy all the time and of unknown memory unless `known` says otherwise."""
        kinds, _, types = ratio.shape
        pace = np.zeros((kinds, LEVELS))
        pace[:, 0] = 1.0
        usual = {"memory_gib": np.zeros((kinds, LEVELS)), "busy": np.ones(kinds), "gpu_gib": np.full(types, np.inf)}
        return cls(ratio, pace, curve=curve, **usual | known)

    def slowdown(self) -> NDArray[np.float64]:
        """`1 / ratio`, at least 1; infinity where two cannot share."""
        return slowdown_of(self.ratio)

    def easing(self) -> NDArray[np.float64]:
        """`eased`; 1 where nobody knows."""
        return np.ones(self.pace.shape) if self.eased is None else np.ascontiguousarray(self.eased, np.float64)


def slowdown_of(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """`1 / ratio`, at least 1; infinity where two cannot share."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(1.0 / ratio, 1.0))
