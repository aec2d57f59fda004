"""Stage times of jobs, from the columns that a Muri log has or from a profile, and what is known beside them.

Start-up seconds per model and GPU count are constants of the released simulator of Muri (Apache-2.0). Memory per GPU
is the table of the public scheduler of SJF-BSBF's authors for the same eight models. Both are facts about V100 and
A6000 testbeds; a model that is not listed costs nothing to start and takes no memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cotenant.core.stages import FITTED, Stages
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Profile

_COUNTS = (1, 2, 4, 8, 16, 32)
_START_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
_GPU_MB = {
    "vgg16": 4224,
    "vgg19": 4304,
    "resnet18": 6432,
    "shufflenet_v2_x1_0": 5252,
    "bert": 8058,
    "gpt2": 10532,
    "a2c": 2094,
    "dqn": 2230,
}
GPU_GIB = 32.0  # of the V100 of Muri's testbed
_STAGES = "resource_time_"


def start_seconds(model: str, gpus: int) -> float:
    """What a start of a job costs; 0 for a model that is not listed. Counts between two take the lower one."""
    known = _START_S.get(model)
    if known is None:
        return 0.0
    return float(known[max(at for at, count in enumerate(_COUNTS) if count <= max(gpus, 1))])


def start_seconds_of(work: Workload) -> Floats:
    """The same for every job of a workload."""
    names = work.model.names
    cost = {(code, gpus): start_seconds(names[code], gpus) for code, gpus in _shapes(work)}
    return np.array([cost[shape] for shape in zip(work.model.code.tolist(), work.gpus.tolist(), strict=True)])


def _shapes(work: Workload) -> set[tuple[int, int]]:
    return set(zip(work.model.code.tolist(), work.gpus.tolist(), strict=True))


def stages_of(work: Workload) -> Stages | None:
    """The kinds of jobs by stage times; None where the log has no such columns."""
    columns = sorted(name for name in work.extra if name.startswith(_STAGES))
    if len(columns) not in (3, 4) or "iteration_time_s" not in work.extra:
        return None
    times = np.stack([np.asarray(work.extra[name], np.float64) for name in columns], axis=1)
    alone = np.asarray(work.extra["iteration_time_s"], np.float64)
    table = np.column_stack([work.model.code, work.gpus, alone, times])
    known = np.isfinite(table).all(axis=1) & (alone > 0) & (times.sum(axis=1) > 0)
    unique, first, of = np.unique(table[known], axis=0, return_index=True, return_inverse=True)
    rows = np.flatnonzero(known)[first]
    kind = np.full(len(work), -1, np.int64)
    kind[known] = of.reshape(-1)
    models = [work.model.names[code] for code in unique[:, 0].astype(int)]
    return Stages(
        of=kind,
        gpus=work.gpus[rows],
        times=times[rows],
        alone_s=alone[rows],
        start_s=np.array([start_seconds(m, int(g)) for m, g in zip(models, work.gpus[rows], strict=True)]),
        gpu_gib=np.array([_GPU_MB.get(model, 0) / 1024 for model in models]),
        nominal_s=np.asarray(work.extra.get("nominal_s", ()), np.float64),
        contention=FITTED,
    )


def profiled_stages(profile: Profile) -> Stages | None:
    """The same from what a profile says of the steps of models; None where it does not.

    A step's time on the GPU is one stage, what it takes beyond that on one GPU is the CPU's, and what a gang takes
    beyond that is the network's. Starts cost what the engine charges; contention is the profile's. Where it knows
    pairs, kinds that it has never seen together stay apart: there is no speed for them.
    """
    if profile.stage_s is None or not np.isfinite(profile.stage_s).any():
        return None
    known = np.asarray(np.isfinite(profile.stage_s).all(axis=1))
    times = np.where(known[:, None], profile.stage_s, 0.0)
    together = profile.together
    memory = np.zeros(len(times)) if together is None else together.claimed_gib()[:, 0]
    strangers = [] if profile.pairs is None else np.argwhere(np.triu((profile.pairs.pair <= 0).any(axis=2))).tolist()
    return Stages(
        of=np.where(known[profile.row], profile.row, -1).astype(np.int64),
        gpus=np.array([gpus for _, gpus in profile.kinds], np.int64),
        times=times,
        alone_s=times.sum(axis=1),
        start_s=np.zeros(len(times)),
        gpu_gib=np.asarray(memory, np.float64),
        contention=profile.contention,
        apart=frozenset((a, b) for a, b in strangers),
        soft=None if together is None or together.soft is None else together,
    )


def stage_memory(stages: Stages) -> Floats:
    """GiB per GPU that each job needs; 0 where nothing is known of it."""
    return np.append(stages.gpu_gib, 0.0)[stages.of]


def iteration_durations(work: Workload) -> Workload:
    """Durations as the released simulator of Muri takes them: iterations times iteration time times 1.015."""
    if "iterations" not in work.extra or "iteration_time_s" not in work.extra:
        return work
    iterations = np.asarray(work.extra["iterations"], np.float64)
    seconds = iterations * np.asarray(work.extra["iteration_time_s"], np.float64) * FITTED[0]
    return replace(work, duration_s=seconds, extra={**work.extra, "nominal_s": work.duration_s})
