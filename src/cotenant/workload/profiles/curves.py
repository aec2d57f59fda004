"""Curves that were measured: steps per second of a job by cores, in a small JSON file.

    {"curves": {"train": {"cores": [0.25, 0.5, 1, 2], "steps_per_s": [2.4, 4.9, 9.7, 10.1], "mem_gib": 1.5}}}

A curve belongs to jobs (or models of a trace) of its name. `cores` are of one GPU's job. Speed 1 is the fastest point.
`mem_gib` is what the job needs to live, 0 where nobody looked; more memory is worth nothing here. `cotenant profile`
writes profile files by now (`profile_file`), which hold such curves among others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles.base import Profile, kinds_of, normal, unknown_models
from cotenant.workload.profiles.profile_file import ProfileFile, is_profile_file, load_profile_file

_STARVED = 0.01  # speed of a job with less memory than it needs: it would swap, or die
_NO_MEMORY = 1e-3
_JUST_BELOW = 0.99
_NOISE = 0.02  # of a rate measured for a few seconds
_STEPS = 39  # quotas are fractions of cores: points between those measured are worth having


@dataclass(frozen=True, slots=True)
class Curve:
    """Rates over cores, both growing."""

    cores: Floats
    steps_per_s: Floats
    mem_gib: float = 0.0

    @classmethod
    def measured(cls, cores: Floats, rates: Floats, mem_gib: float = 0.0) -> Curve:
        """More cores never hurt, and who is as fast as the fastest but for noise has enough of them."""
        grown = np.maximum.accumulate(rates)
        return cls(cores, np.where(grown >= (1 - _NOISE) * grown[-1], grown[-1], grown), mem_gib)

    @property
    def top(self) -> float:
        """Steps per second at the fastest point."""
        return float(self.steps_per_s.max())


def is_curves(data: Any) -> bool:
    """Whether a JSON document is such a file."""
    return isinstance(data, dict) and isinstance(data.get("curves"), dict)


def read_curves(data: Mapping[str, Any], where: str) -> dict[str, Curve]:
    """The curves of a document by name."""
    found = {}
    for name, entry in data["curves"].items():
        try:
            cores, rate = np.array(entry["cores"], np.float64), np.array(entry["steps_per_s"], np.float64)
            mem = float(entry.get("mem_gib", 0.0))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{where}: curve '{name}' needs lists of numbers 'cores' and 'steps_per_s'") from None
        good = cores.ndim == 1 and cores.shape == rate.shape and len(cores) > 0 and mem >= 0
        if not good or not (cores > 0).all() or not (np.diff(cores) > 0).all() or not (rate > 0).all():
            raise InputError(f"{where}: curve '{name}': cores must grow, and all numbers must be positive")
        found[normal(name)] = Curve.measured(cores, rate, mem)
    return found


def load_curves(path: Path) -> dict[str, Curve]:
    """The curves of a file, which may be a profile file too."""
    if is_profile_file(path):
        return curves_of(load_profile_file(path))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path}: not JSON") from None
    if not is_curves(data):
        raise InputError(f"{path}: must hold 'curves:'; `cotenant profile` writes such a file")
    return read_curves(data, str(path))


def curves_of(file: ProfileFile) -> dict[str, Curve]:
    """The curves over cores that a profile file has, by model."""
    found = {}
    for name, model in file.models.items():
        one = next((one for one in file.by_preference(model) if one.by_cores), None)
        if one is not None:
            cores, rates = (np.array(column) for column in zip(*one.by_cores, strict=True))
            found[normal(name)] = Curve.measured(cores, rates, float(np.nan_to_num(one.mem_gib)))
    return found


def save_curve(path: Path, name: str, curve: Curve) -> None:
    """Add a curve to a file, or make one."""
    data: dict[str, Any] = {"curves": {}}
    if path.exists():
        load_curves(path)
        data = json.loads(path.read_text(encoding="utf-8"))
    rates = [round(float(rate), 6) for rate in curve.steps_per_s]
    data["curves"][name] = {"cores": curve.cores.tolist(), "steps_per_s": rates, "mem_gib": curve.mem_gib}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def sensitivity_of(names: Sequence[str], curves: Mapping[str, Curve]) -> Sensitivity:
    """Matrices of jobs of these names; those without a curve are as fast with anything."""
    known = [curves.get(normal(name)) for name in names]
    have = [curve for curve in known if curve is not None]
    axis = np.unique(np.concatenate([curve.cores for curve in have])) if have else np.ones(1)
    axis = np.unique(np.concatenate([axis, np.linspace(axis[0], axis[-1], _STEPS)]))
    cliffs = [(curve.mem_gib * _JUST_BELOW, curve.mem_gib) for curve in have if curve.mem_gib > _NO_MEMORY]
    needs = sorted({_NO_MEMORY, *(edge for cliff in cliffs for edge in cliff)})
    table = np.ones((len(names), len(axis), len(needs)))
    step_s = np.full(len(names), np.nan)
    for at, curve in enumerate(known):
        if curve is not None:
            speed = np.interp(axis, curve.cores, curve.steps_per_s / curve.top)
            speed *= np.minimum(axis / curve.cores[0], 1.0)
            table[at] = np.where(np.array(needs)[None, :] >= curve.mem_gib - 1e-9, speed[:, None], _STARVED)
            step_s[at] = 1 / curve.top
    return Sensitivity(axis, np.array(needs), table, np.full((len(names), 3), np.nan), step_s)


def curves_profile(name: str, data: Mapping[str, Any], work: Workload, gpu_types: Sequence[str]) -> Profile:
    """A profile of a trace whose models have curves; durations are those at the fastest point."""
    kinds, row = kinds_of(work)
    curves = read_curves(data, name)
    notes = unknown_models(name, kinds, [normal(model) in curves for model, _ in kinds])
    found = sensitivity_of([model for model, _ in kinds], curves)
    speed = np.ones((len(kinds), len(gpu_types), 2))
    return Profile(name, tuple(gpu_types), kinds, row, speed, 1 / found.step_s, None, notes, found)
