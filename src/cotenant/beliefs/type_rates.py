"""How fast kinds of jobs are on one GPU type against another, from jobs that have run on both.

Step times of two jobs say little of two types, for their batches may differ; those of one job on both do. The mean of
such ratios (of logarithms) over jobs of a kind goes before what a profile says, which counts as a fraction of one job;
types of which nothing was measured stay where the profile has them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from cotenant.core.workload import Floats
from cotenant.workload.profiles import Kind

_PRIOR = 0.25  # jobs for which the profile's word counts
_MOST = 20  # jobs after which older ones count less
_MANY = 1000


class TypeRates:
    """What was measured so far; `changes` counts how often it became something else."""

    def __init__(self) -> None:
        self.changes = 0
        self._steps: dict[str, dict[str, float]] = {}  # by job and GPU type: what a step takes alone
        self._ratios: dict[Kind, dict[tuple[str, str], tuple[float, int]]] = {}  # mean log of a speed over another's

    def learn(self, kind: Kind, job: str, gpu_type: str, step_s: float) -> None:
        """A step of this job takes so long on this type, alone and on one node; each job counts once per two types."""
        steps = self._steps.setdefault(job, {})
        if gpu_type not in steps:
            for other, other_s in steps.items():
                self._count(kind, gpu_type, other, math.log(other_s / step_s))
        steps[gpu_type] = step_s

    def _count(self, kind: Kind, gpu_type: str, other: str, log_ratio: float) -> None:
        pair = (gpu_type, other) if gpu_type < other else (other, gpu_type)
        value = log_ratio if pair[0] == gpu_type else -log_ratio
        known = self._ratios.setdefault(kind, {})
        mean, count = known.get(pair, (0.0, 0))
        count = min(count + 1, _MOST)
        known[pair] = mean + (value - mean) / count, count
        self.changes += 1

    def speeds(self, kind: Kind, types: Sequence[str], profiled: Floats) -> Floats:
        """Speeds of a kind by type (any number of columns of them), by what was measured and what the profile says."""
        if kind not in self._ratios:
            return profiled
        at = {name: number for number, name in enumerate(types)}
        known = [(at[a], at[b], *seen) for (a, b), seen in self._ratios[kind].items() if a in at and b in at]
        own = profiled.reshape(len(types), -1)[:, 0]
        known = [(a, b, mean, count) for a, b, mean, count in known if own[a] > 0 and own[b] > 0]
        if not known:
            return profiled
        logs = np.log(np.where(own > 0, own, 1.0))
        matrix, right = _PRIOR * np.eye(len(types)), _PRIOR * logs
        for a, b, mean, count in known:
            matrix[[a, b], [a, b]] += count
            matrix[[a, b], [b, a]] -= count
            right[[a, b]] += count * mean, -count * mean
        factor = np.exp(np.linalg.solve(matrix, right) - logs)
        return np.asarray(profiled * factor.reshape(-1, *[1] * (profiled.ndim - 1)))

    def copy(self) -> TypeRates:
        """As it is now."""
        made = TypeRates()
        made.changes, made._steps = self.changes, {job: dict(steps) for job, steps in self._steps.items()}
        made._ratios = {kind: dict(known) for kind, known in self._ratios.items()}
        return made

    def keeps(self) -> list[Any]:
        """As plain data."""
        return [
            [list(kind), *pair, round(mean, 4), count]
            for kind, known in self._ratios.items()
            for pair, (mean, count) in known.items()
        ]

    def recall(self, kept: Iterable[Any]) -> None:
        """The inverse, where nothing newer is known."""
        for (model, gpus), one, two, mean, count in kept:
            known = self._ratios.setdefault((str(model), int(gpus)), {})
            self.changes += (one, two) not in known
            known.setdefault((one, two), (mean, count))

    def forget_but(self, jobs: Container[str]) -> None:
        """Once much is kept of jobs: forget those that are not among these."""
        if len(self._steps) > _MANY:
            self._steps = {job: steps for job, steps in self._steps.items() if job in jobs}
