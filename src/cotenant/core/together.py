"""What is known of jobs that share GPUs, by kind: the vocabulary of sharing policies and of the truth behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.declared import Oversubscription
from cotenant.core.memory import grant, refusal
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
class SoftMemory:
    """Memory that gives (`core.memory`), where that is switched on.

    `least[a]` is the part of its memory that a kind cannot do without (1: all), `steps_per_s[a]` how often what is
    missing goes out and comes back, at its fastest.
    """

    rule: Oversubscription
    least: Floats
    steps_per_s: Floats


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
    while b runs on other GPUs of its server (they share links and cores); None: that does not matter. `least[a]` is the
    part of its memory that a kind cannot do without; it counts only where memory gives (`soft`). `told[a]`: its
    curve was measured or declared, not taken from others.
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
    least: Floats | None = None
    told: NDArray[np.bool_] | None = None
    soft: SoftMemory | None = None  # None: peaks must fit

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

    def claimed_gib(self) -> NDArray[np.float64]:
        """`[kind, level]`: what there must be on a GPU for it: all that it needs, or its least where memory gives."""
        return self.memory_gib if self.soft is None else self.memory_gib * self.soft.least[:, None]

    def refusal(self, kinds: Sequence[int], levels: Sequence[int], gpu_type: int) -> str:
        """Why these may not squeeze together on one GPU; '' where they may, or where memory does not give."""
        return "" if self.soft is None else refusal(*self._needs(kinds, levels, gpu_type))

    def parts(self, kinds: Sequence[int], levels: Sequence[int], gpu_type: int) -> Floats | None:
        """The part of its memory that each of these is granted on one GPU; None where they may not be there."""
        needs = self._needs(kinds, levels, gpu_type)
        granted, peaks = grant(*needs), needs[0]
        return None if granted is None else np.divide(granted, peaks, out=np.ones(len(peaks)), where=peaks > 0)

    def _needs(
        self, kinds: Sequence[int], levels: Sequence[int], gpu_type: int
    ) -> tuple[Floats, Floats, float, float, float, Floats]:
        soft, where = self.soft, list(kinds)
        assert soft is not None
        peaks = np.asarray(self.memory_gib[where, list(levels)], np.float64)
        room, rule = float(self.gpu_gib[gpu_type]), soft.rule
        return peaks, peaks * soft.least[where], room, rule.cap, rule.bus_gib_s, soft.steps_per_s[where]

    def speed_at(self, kind: int, part: float) -> float:
        """Speed of a kind when so large a part of its memory lies on the GPU."""
        return float(np.interp(part, CURVE, self.curve[kind]))

    def alone_parts(self, gpu_type: int) -> Floats:
        """By kind the part of its memory that a whole GPU holds; 1 where memory does not give."""
        if self.soft is None:
            return np.ones(len(self.busy))
        peaks = np.maximum(self.memory_gib[:, 0], 1e-9)
        return np.asarray(np.minimum(self.gpu_gib[gpu_type] / peaks, 1.0))


def slowdown_of(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """`1 / ratio`, at least 1; infinity where two cannot share."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(1.0 / ratio, 1.0))
