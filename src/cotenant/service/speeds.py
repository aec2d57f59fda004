"""How fast live jobs run on which GPU type, from the same profiles that the simulator loads.

Looked up once per kind of job (model and GPU count). A job that names a GPU type runs at 0 on all others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Floats, Ints, make_workload
from cotenant.service.rows import Columns
from cotenant.workload.profiles import Kind, load_profile


class Speeds:
    """Speeds of the kinds seen so far on the GPU types of the backend."""

    def __init__(self, profile: str, types: Iterable[str]) -> None:
        self.profile, self.types = profile, tuple(dict.fromkeys(types))
        self._known: dict[Kind, Floats] = {}
        self._steps: dict[Kind, float] = {}
        self._load([("", 1)])  # a profile that cannot be read, or lacks a type, is refused at the start

    def of(self, model: str, gpus: int, gpu_type: str) -> float:
        """Seconds of work per second of such a job; 1 on types that nobody knew at the start."""
        if self.profile == "none" or gpu_type not in self.types:
            return 1.0
        return float(self._of((model, gpus))[self.types.index(gpu_type), 0])

    def table(self, jobs: Columns, types: Sequence[str]) -> tuple[NDArray[np.float64], Ints, Floats]:
        """Speeds by kind and type (consolidated, spread), the kind of each job, and steps per second of each job."""
        free = not (jobs.gpu_type.code != 0).any()
        if self.profile == "none" and free:
            rows = len(jobs.ids)
            return np.ones((1, len(types), 2)), np.zeros(rows, np.int64), np.full(rows, np.nan)
        most, names = int(jobs.gpus.max(initial=0)) + 1, len(jobs.gpu_type.names)
        codes, row = np.unique((jobs.model.code * names + jobs.gpu_type.code) * most + jobs.gpus, return_inverse=True)
        speed = np.ones((len(codes), len(types), 2))
        steps = np.full(len(codes), np.nan)
        for at, code in enumerate(codes.tolist()):
            kind = jobs.model.names[code // most // names], code % most
            only = jobs.gpu_type.names[code // most % names]
            if self.profile != "none":
                own = self._of(kind)
                steps[at] = self._steps[kind]
                for place, name in enumerate(types):
                    speed[at, place] = own[self.types.index(name)] if name in self.types else 1.0
            if only:
                speed[at, [name != only for name in types]] = 0.0
        row = row.reshape(-1).astype(np.int64)
        return speed, row, steps[row]

    def _of(self, kind: Kind) -> Floats:
        if kind not in self._known:
            try:
                self._load([kind])
            except (InputError, OSError) as error:  # it could be read at the start: go on without
                sys.stderr.write(f"cotenant: profile {self.profile}: {error}; model '{kind[0]}' runs at speed 1\n")
                self._known[kind], self._steps[kind] = np.ones((len(self.types), 2)), np.nan
        return self._known[kind]

    def _load(self, kinds: Sequence[Kind]) -> None:
        if self.profile == "none":
            return
        models = Codes(np.arange(len(kinds)), tuple(model for model, _ in kinds))
        gpus, one = np.array([count for _, count in kinds], np.int64), np.ones(len(kinds))
        found = load_profile(self.profile, make_workload("live", 0 * one, gpus, one, model=models), self.types)
        for kind, speed, steps in zip(found.kinds, found.speed, found.steps_per_s.tolist(), strict=True):
            self._steps[kind] = steps
            self._known[kind] = speed
