"""Synergy's profiles: speed of ten and more models over cores and memory per GPU (OSDI'22, released model files).

The file groups profiles by the cores per GPU of a server; speeds of every group are relative to 3 cores and 62.5 GB,
which is also what a trace's iterations refer to, so the first group serves every cluster. Profiles of 2 and 4 GPUs
exist but the released simulator uses the one of 1 GPU for every gang, and so do we.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Profile, kinds_of, normal, unknown_models

_KEYS = ("cpu_axis", "mem_axis_gb", "profiles")
_GROUP = "cpu_per_gpu_3"


def is_synergy(data: Any) -> bool:
    """Whether a JSON document is such a file."""
    return isinstance(data, dict) and all(key in data for key in _KEYS)


def synergy_profile(name: str, data: dict[str, Any], work: Workload, gpu_types: Sequence[str]) -> Profile:
    """Speed 1 on every GPU type; cores and memory say the rest. Models that the file lacks need neither."""
    kinds, row = kinds_of(work)
    cpus, mems = _axis(name, data, "cpu_axis"), _axis(name, data, "mem_axis_gb")
    group = data["profiles"].get(_GROUP) if isinstance(data["profiles"], dict) else None
    if not isinstance(group, dict):
        raise InputError(f"{name}: profiles.{_GROUP} is missing")
    known = {normal(key.removesuffix("_1")): value for key, value in group.items() if key.endswith("_1")}
    table = np.ones((len(kinds), len(cpus), len(mems)))
    wanted, step_s = np.full((len(kinds), 3), np.nan), np.full(len(kinds), np.nan)
    for at, (model, _) in enumerate(kinds):
        if normal(model) in known:
            table[at], wanted[at], step_s[at] = _one(name, model, known[normal(model)], (len(cpus), len(mems)))
    notes = unknown_models(name, kinds, [normal(model) in known for model, _ in kinds])
    speed = np.ones((len(kinds), len(gpu_types), 2))
    steps = 1 / step_s
    found = Sensitivity(cpus, mems, table, wanted, step_s)
    return Profile(name, tuple(gpu_types), kinds, row, speed, steps, None, notes, found)


def _axis(name: str, data: dict[str, Any], key: str) -> Floats:
    try:
        axis = np.array(data[key], np.float64)
    except (TypeError, ValueError):
        axis = np.zeros(0)
    if axis.ndim != 1 or not len(axis) or not (np.diff(axis) > 0).all() or not axis[0] > 0:
        raise InputError(f"{name}: {key} must be a growing list of positive numbers")
    return axis


def _one(name: str, model: str, entry: Any, shape: tuple[int, int]) -> tuple[Floats, tuple[float, float, float], float]:
    try:
        table = np.array(entry["tput"], np.float64)
        demand = tuple(float(entry[key]) for key in ("cpus_per_gpu", "mem_gb_per_gpu", "speedup_vs_proportional"))
        step_s = float(entry["iter_time_s_at_proportional"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name}: profile of '{model}' is broken: {error}") from None
    if table.shape != shape or not (table >= 0).all() or not np.isfinite(table).all():
        raise InputError(f"{name}: tput of '{model}' must be {shape[0]} x {shape[1]} numbers of at least 0")
    if not step_s > 0 or not all(value > 0 for value in demand):
        raise InputError(f"{name}: demand and iteration time of '{model}' must be positive")
    return table, (demand[0], demand[1], demand[2]), step_s
