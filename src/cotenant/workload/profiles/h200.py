"""Built-in profile `h200`: eight models measured on one H200, alone and in pairs, and other types derived.

Measured: step times and memory over batch sizes, and all 36 pairs at one batch size each, under MPS and
time-sliced (`data/h200.json`, which says how). Derived by `roofline`: the other GPU types, gangs, spread
gangs, and pairs on other types. A model is named as in the file, at the batch size of the pairs, or with
another measured one: `gpt2 (batch size 16)`. Speed 1 is the H200, consolidated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Workload
from cotenant.workload.profiles.base import UNNAMED_TYPE, Kind, Pairs, Profile, kinds_of, normal, unknown_models
from cotenant.workload.profiles.measured import FLOPS_PER_SAMPLE, REFERENCE, SHARING, default_batch, steps
from cotenant.workload.profiles.measured import pairs as measured_pairs
from cotenant.workload.profiles.roofline import GPUS, shared_ratios, step_seconds
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


def h200_profile(name: str, sharing: str, work: Workload, gpu_types: Sequence[str]) -> Profile:
    """Speeds against the H200; models that were not measured run at 1 everywhere."""
    if sharing not in SHARING:
        raise unknown("sharing of profile 'h200'", sharing, SHARING)
    types = [REFERENCE if normal(kind) == UNNAMED_TYPE else normal(kind) for kind in gpu_types]
    for kind, shown in zip(types, gpu_types, strict=True):
        if kind not in GPUS:
            raise unknown("GPU type of profile 'h200'", shown, GPUS)
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
                speed[at, column, int(spread)] = base_s / step_seconds(steps()[key], seen, GPUS[kind], gpus, spread)
    notes = unknown_models(name, kinds, [key is not None for key in keys])
    pairs = _pairs(sharing, kinds, keys, types, speed)
    together = h200_together(sharing, kinds, keys, types)
    return Profile(
        name, tuple(gpu_types), kinds, row, speed, steps_per_s, pairs, notes, together=together, stage_s=stage_s
    )


def _pairs(
    sharing: str, kinds: Sequence[Kind], keys: Sequence[tuple[str, int] | None], types: Sequence[str], speed: Any
) -> Pairs | None:
    """Pairs of equal GPU count at the measured batch sizes: every member of a gang is slowed like one GPU."""
    measured = measured_pairs(sharing)
    some = [at for at, key in enumerate(keys) if key is not None and key[1] == default_batch(key[0])]
    if not some:
        return None
    place = np.full(len(kinds), -1, np.int64)
    place[some] = np.arange(len(some))
    table = np.zeros((len(some), len(some), len(types)))
    seen = GPUS[REFERENCE]
    ratios: dict[tuple[tuple[str, int], tuple[str, int], str], float] = {}
    for a, row_a in enumerate(some):
        for b, row_b in enumerate(some):
            key_a, key_b = keys[row_a], keys[row_b]
            if kinds[row_a][1] != kinds[row_b][1] or key_a is None or key_b is None:
                continue
            for column, kind in enumerate(types):
                if (key_a, key_b, kind) not in ratios:
                    both = steps()[key_a], steps()[key_b]
                    pair_ratios = shared_ratios(measured[key_a[0], key_b[0]], both, seen, GPUS[kind])
                    ratios[key_a, key_b, kind] = pair_ratios[0]
                table[a, b, column] = ratios[key_a, key_b, kind] * speed[row_a, column, 0]
    return Pairs(place, table)


def sharing_of(params: dict[str, str]) -> str:
    """The parameter of `h200:sharing=mps`."""
    for name in params:
        if name != "sharing":
            raise InputError(f"profile 'h200': unknown parameter '{name}'; write h200 or h200:sharing=time-sliced")
    return params.get("sharing", "mps")
