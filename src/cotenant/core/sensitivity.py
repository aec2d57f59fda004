"""How fast a kind of job runs with so many cores and so much memory beside each of its GPUs.

The matrix W of Synergy (OSDI'22, section 3): cores feed the input pipeline, memory caches the data set. Speeds are
relative to what the durations of the workload refer to. Cores and memory are per GPU; memory is in the unit of the
cluster (GiB, or a paper's GB).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotenant.core.workload import Floats, Ints

CPU, MEM, RATE = 0, 1, 2  # columns of demands: cores and memory per GPU, and the speed that they give


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """`table[kind, cores, memory]` over the two axes.

    `wanted[kind]` is the best-case demand (cores, memory, speed) that the source itself names, NaN where it does not.
    `step_s[kind]` is the time of one mini-batch at speed 1, NaN where it is not known.
    """

    cpu_axis: Floats
    mem_axis: Floats
    table: Floats
    wanted: Floats
    step_s: Floats

    def speed(self, kind: Ints, cpus: Floats, mem: Floats) -> Floats:
        """Speed of jobs of these kinds with so much per GPU: linear between the points of the matrix.

        Below the first number of cores speed falls in proportion to them; beyond the other ends it stays.
        """
        low_c, part_c = _between(self.cpu_axis, cpus)
        low_m, part_m = _between(self.mem_axis, mem)
        high_c = np.minimum(low_c + 1, len(self.cpu_axis) - 1)
        high_m = np.minimum(low_m + 1, len(self.mem_axis) - 1)
        table = self.table
        near = table[kind, low_c, low_m] * (1 - part_m) + table[kind, low_c, high_m] * part_m
        far = table[kind, high_c, low_m] * (1 - part_m) + table[kind, high_c, high_m] * part_m
        short = np.minimum(np.asarray(cpus) / self.cpu_axis[0], 1.0)
        return np.asarray((near * (1 - part_c) + far * part_c) * short, np.float64)

    def take(self, kinds: Ints) -> Sensitivity:
        """The same for a selection of kinds."""
        return replace(self, table=self.table[kinds], wanted=self.wanted[kinds], step_s=self.step_s[kinds])


def _between(axis: Floats, at: Floats) -> tuple[Ints, Floats]:
    """The point of an axis at or below each value, and how far towards the next one it lies."""
    low = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 1)
    high = np.minimum(low + 1, len(axis) - 1)
    width = np.where(high > low, axis[high] - axis[low], 1.0)
    return low.astype(np.int64), np.clip((at - axis[low]) / width, 0.0, 1.0)


def insensitive(kinds: int, cpu_axis: Floats, mem_axis: Floats) -> Sensitivity:
    """Speed 1 whatever the share."""
    return Sensitivity(
        cpu_axis,
        mem_axis,
        np.ones((kinds, len(cpu_axis), len(mem_axis))),
        np.full((kinds, 3), np.nan),
        np.full(kinds, np.nan),
    )
