"""What the stages of a step take, as jobs say: measured alone, or in a group that takes turns and is not disturbed.

In company without turns stages are slowed by each other, so what jobs say then teaches nothing.
"""

from __future__ import annotations

from typing import Any

from cotenant.beliefs.watched import Told
from cotenant.workload.profiles import Kind

STAGES = ("load", "preprocess", "compute", "synchronise")
"""In the order of the slots: storage, CPU, GPU, network."""
_LEARN_BY = 0.1  # of a step: less does not change what is believed, for policies think anew at each change

StageTimes = dict[tuple[Kind, str], tuple[float, ...]]
"""Kind and GPU type -> seconds per step in each of the four."""


def told_stages(report: Told | None, alone: bool) -> tuple[float, ...] | None:
    """The stages of a job by its own word; what it does outside of any is the CPU's. None where they say nothing."""
    if report is None or not report.stages or not (alone or report.waited_s > 0):
        return None
    load, preprocess, compute, synchronise = (max(report.stages.get(name, 0.0), 0.0) for name in STAGES)
    return load, preprocess + max(report.stages.get("other", 0.0), 0.0), compute, synchronise


def learn_stages(known: StageTimes, key: tuple[Kind, str], times: tuple[float, ...]) -> bool:
    """Believe them, where they are news."""
    before = known.get(key)
    if before is not None and max(abs(a - b) for a, b in zip(before, times, strict=True)) <= _LEARN_BY * sum(before):
        return False
    known[key] = times
    return True


def kept_stages(known: StageTimes) -> list[Any]:
    """As plain data."""
    return [[list(kind), gpu_type, [round(each, 6) for each in times]] for (kind, gpu_type), times in known.items()]


def recalled_stages(kept: list[Any]) -> StageTimes:
    """The inverse."""
    return {((str(kind[0]), int(kind[1])), str(gpu_type)): tuple(times) for kind, gpu_type, times in kept}
