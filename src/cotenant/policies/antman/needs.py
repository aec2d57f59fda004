"""What jobs of AntMan need of a GPU's memory, whole and squeezed."""

from __future__ import annotations

import numpy as np

from cotenant.core.together import Together
from cotenant.core.workload import Floats
from cotenant.placement.room import SharedRoom
from cotenant.policies.antman.memory import LEAST, least_part


def memory_of(together: Together | None, kind: int) -> float:
    """GiB per GPU of a kind of job at its whole batch; no more than a GPU has, where memory gives."""
    return 0.0 if together is None else float(together.memory_gib[kind, 0]) * held_by_a_gpu(together, kind)


def needs_by_kind(together: Together | None, kinds: int) -> Floats:
    """The same of all kinds."""
    return np.array([memory_of(together, kind) for kind in range(kinds)], np.float64)


def held_by_a_gpu(together: Together | None, kind: int) -> float:
    """The part of its memory that the largest GPU holds, where memory gives; else 1."""
    if together is None or together.soft is None:
        return 1.0
    return min(float(together.gpu_gib.max()) / max(float(together.memory_gib[kind, 0]), 1e-9), 1.0)


def full_need(together: Together | None, board: SharedRoom, row: int) -> float:
    """The same for a job, however much of it may lie on the GPU now."""
    return memory_of(together, board.kind(row))


def part_of_kind(together: Together | None, kind: int) -> float:
    """The part of its memory that an opportunistic job cannot do without: as declared, or as its curve says."""
    if together is None:
        return LEAST
    if together.soft is None:
        return least_part(together.curve[kind])
    return min(float(together.soft.least[kind]) / held_by_a_gpu(together, kind), 1.0)


def least_of(together: Together | None, board: SharedRoom, row: int) -> float:
    """The same for a job."""
    return part_of_kind(together, board.kind(row))


def squeezed_needs(together: Together | None, kinds: int) -> Floats:
    """By kind what an opportunistic job keeps on a GPU that a guaranteed one comes to: nothing if it has to leave."""
    parts = [part_of_kind(together, kind) for kind in range(kinds)]
    return np.array([part * memory_of(together, kind) if part < 1 else 0.0 for kind, part in enumerate(parts)])
