"""What is known of the stages of an iteration: the vocabulary of groups that interleave them (Muri, SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cotenant.core.together import Together
from cotenant.core.workload import Floats, Ints

# Contention that the authors fitted to their V100 testbed: an iteration alone, and a cycle of 2, 3 and 4 jobs.
FITTED = (1.015, 1.33, 1.5, 1.37)
# Where nobody has measured any: a cycle takes what its stages say.
UNMEASURED = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Stages:
    """Kinds of jobs by their stage times; `of[row]` is a job's kind, -1 where nothing is known of it.

    `times[kind]` holds 3 numbers (data, GPU, network; data takes two of four slots) or 4 (storage, CPU, GPU,
    network), seconds per iteration; `alone_s` is a whole iteration without company. A cycle of k jobs takes
    `contention[k - 1] / contention[0]` times what its stages say. `start_s` is what starting costs, seconds. Kinds of a
    pair of `apart`, the smaller first, must not share GPUs.
    """

    of: Ints
    gpus: Ints  # kind -> GPU count
    times: NDArray[np.float64]  # kind x 3 or 4
    alone_s: Floats
    start_s: Floats
    gpu_gib: Floats  # kind -> GiB per GPU, 0 where not known
    nominal_s: Floats = field(default_factory=lambda: np.zeros(0))  # row -> how long its source says it takes
    contention: tuple[float, ...] = UNMEASURED
    apart: frozenset[tuple[int, int]] = frozenset()
    soft: Together | None = None  # of the same kinds, where memory gives: `gpu_gib` is what they need at least

    def may_share(self, kinds: Collection[int], room_gib: float) -> bool:
        """Whether jobs of these kinds fit a GPU of this size, and none of them is to be kept from another."""
        if self.gpu_gib[list(kinds)].sum() > room_gib:
            return False
        if self.soft is not None and self.soft.refusal(list(kinds), [0] * len(kinds), int(self.soft.gpu_gib.argmin())):
            return False
        return not self.apart or not any(pair in self.apart for pair in combinations(sorted(kinds), 2))
