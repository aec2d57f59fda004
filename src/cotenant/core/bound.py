"""Whether a job's steps wait for the GPU or for the host, by how busy it keeps its GPU."""

from __future__ import annotations

GPU_BOUND = 0.8  # of the time in which its GPU has work: from there on a job's steps take what the GPU takes


def bound_to_gpu(busy: float) -> bool:
    """Whether steps take what the GPU takes; not where nobody knows (NaN)."""
    return busy >= GPU_BOUND


def bound_to_host(busy: float) -> float:
    """How much of a change of the host's pace a job's steps share: all of it where the GPU waits for the host, else as
    much as there are gaps."""
    return 1.0 - busy if bound_to_gpu(busy) else 1.0
