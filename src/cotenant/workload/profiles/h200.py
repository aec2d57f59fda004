"""Built-in profile `h200`: eight models measured on one H200, alone and in pairs, and other types derived.

Measured: step times and memory over batch sizes, and all 36 pairs at one batch size each, under MPS and
time-sliced (`data/h200.json`, which says how). Derived by `roofline`: the other GPU types, gangs, spread
gangs, and pairs on other types. A model is named as in the file, at the batch size of the pairs, or with
another measured one: `gpt2 (batch size 16)`. Speed 1 is the H200, consolidated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from cotenant.core.cycles import all_cycles
from cotenant.core.errors import InputError, unknown
from cotenant.core.together import Together
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Kind, Pairs, Profile, kinds_of, normal, own_types, unknown_models
from cotenant.workload.profiles.measured import FLOPS_PER_SAMPLE, REFERENCE, SHARING, default_batch, steps
from cotenant.workload.profiles.roofline import GPUS, step_seconds
from cotenant.workload.profiles.together import h200_together

_NAME = re.compile(r"(?P<model>.+?)\s*\(batch size (?P<batch>\d+)\)")


def find(name: str) -> tuple[str, int] | None:
    """The measured (model, batch size) that a name means, or None."""
    model, batch = normal(name), 0
    if match := _NAME.fullmatch(model):
        model, batch = match["model"], int(match["batch"])
    if model not in FLOPS_PER_SAMPLE:
        return None
    key = model, batch or default_batch(model)
    return key if key in steps() else None


def h200_profile(name: str, sharing: str, work: Workload, gpu_types: Sequence[str], soft: bool = False) -> Profile:
    """Speeds against the H200; models that were not measured run at 1 everywhere. `soft`: memory shuts nobody out."""
    if sharing not in SHARING:
        raise unknown("sharing of profile 'h200'", sharing, SHARING)
    types = own_types("'h200'", gpu_types, REFERENCE, GPUS)
    kinds, row = kinds_of(work)
    keys = [find(model) for model, _ in kinds]
    speed = np.ones((len(kinds), len(types), 2))
    steps_per_s = np.full(len(kinds), np.nan)
    stage_s = np.full((len(kinds), 4), np.nan)
    seen = GPUS[REFERENCE]
    for at, (key, (_, gpus)) in enumerate(zip(keys, kinds, strict=True)):
        if key is None:
            continue
        base_s = step_seconds(steps()[key], seen, seen, gpus)
        steps_per_s[at] = 1 / base_s
        one_s, gpu_s = step_seconds(steps()[key], seen, seen), steps()[key].gpu_s
        stage_s[at] = 0.0, max(one_s - gpu_s, 0.0), gpu_s, max(base_s - one_s, 0.0)
        for column, kind in enumerate(types):
            for spread in (False, True):
                step_s = step_seconds(steps()[key], seen, GPUS[kind], gpus, spread, soft)
                speed[at, column, int(spread)] = base_s / step_s
    notes = unknown_models(name, kinds, [key is not None for key in keys])
    together = h200_together(sharing, kinds, keys, types, soft)
    pairs = _pairs(kinds, keys, together, speed)
    return Profile(
        name, tuple(gpu_types), kinds, row, speed, steps_per_s, pairs, notes, together=together, stage_s=stage_s,
        contention=_contention(sharing),
    )  # fmt: skip


@cache
def _contention(sharing: str) -> tuple[float, ...]:
    """By how much a cycle of two is longer than their stages say: the median of the measured pairs, by summed speeds.

    Larger groups were not measured: they are taken to be as two.
    """
    keys = [(model, default_batch(model)) for model in FLOPS_PER_SAMPLE]
    ratio = h200_together(sharing, [(model, 1) for model, _ in keys], keys, [REFERENCE]).ratio[:, :, 0]
    seen = GPUS[REFERENCE]
    alone_s = [step_seconds(steps()[key], seen, seen) for key in keys]
    stages = [
        (0.0, max(s - steps()[key].gpu_s, 0.0), steps()[key].gpu_s, 0.0) for key, s in zip(keys, alone_s, strict=True)
    ]
    found = [
        (sum(stages[a]) + sum(stages[b])) / min(all_cycles([stages[a], stages[b]])) / (ratio[a, b] + ratio[b, a])
        for a in range(len(keys))
        for b in range(a + 1)
    ]
    two = float(np.median(found))
    return 1.0, two, two, two


def _pairs(
    kinds: Sequence[Kind], keys: Sequence[tuple[str, int] | None], together: Together, speed: Floats
) -> Pairs | None:
    """Pairs of equal GPU count at the measured batch sizes: every member of a gang is slowed like one GPU."""
    some = [at for at, key in enumerate(keys) if key is not None and key[1] == default_batch(key[0])]
    if not some:
        return None
    place = np.full(len(kinds), -1, np.int64)
    place[some] = np.arange(len(some))
    gpus = np.array([kinds[at][1] for at in some])
    beside = together.ratio[np.ix_(some, some)] * speed[some][:, None, :, 0]
    return Pairs(place, np.where((gpus[:, None] == gpus[None, :])[:, :, None], beside, 0.0))


def sharing_of(params: dict[str, str]) -> str:
    """The parameter of `h200:sharing=mps`."""
    for name in params:
        if name != "sharing":
            raise InputError(f"profile 'h200': unknown parameter '{name}'; write h200 or h200:sharing=time-sliced")
    return params.get("sharing", "mps")
