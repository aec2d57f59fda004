"""What the stages of a step take, as jobs say: measured alone, or in a group that takes turns and is not disturbed.

In company without turns stages are slowed by each other, so what jobs say then teaches nothing. In simulations a policy
believes the truth, or is wrong about it by as much as it asks to be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cotenant.beliefs.watched import Told
from cotenant.core.stages import Stages
from cotenant.workload.profiles import Kind

STAGES = ("load", "preprocess", "compute", "synchronise")
"""In the order of the slots: storage, CPU, GPU, network."""
_LEARN_BY = 0.1  # of a step: less does not change what is believed, for policies think anew at each change

StageTimes = dict[tuple[Kind, str], tuple[float, ...]]
"""Kind and GPU type -> seconds per step in each of the four."""


def believed_stages(truth: Stages, noise: float, seed: int) -> Stages:
    """What a policy knows of the stages that move jobs in a simulation: their times, each wrong by a factor."""
    wrong = np.exp(noise * np.random.default_rng([seed, 7919]).standard_normal(truth.times.shape))
    times = truth.times * wrong
    whole = truth.times.sum(axis=1)
    ratio = np.divide(times.sum(axis=1), whole, out=np.ones(len(times)), where=whole > 0)
    return replace(truth, times=times, alone_s=truth.alone_s * ratio)


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
