"""Attempts that fail, for logs that do not say which did: how often by size, and classes of failure.

The figures are ours, round numbers after what such studies tell: mistakes show early and come back at every try, what
the machines do shows late and rarely twice. Failed attempts are parts of the job's duration, as in logs that have them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, typed_params
from cotenant.core.workload import Floats, Status, Workload

COLUMN = "failure_class"
"""Of `Workload.extra`: 1 + the place in `CLASSES` of whatever makes a job's attempts fail; 0 where none does."""


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One kind of failure: its part of all failing jobs, when it shows, and whether trying again helps."""

    name: str
    part: float
    median_s: float
    comes_back: bool


CLASSES = (
    FailureClass("setup", 0.40, 300.0, True),  # wrong paths, missing packages, broken scripts
    FailureClass("memory", 0.20, 900.0, True),  # of the host or of the GPU
    FailureClass("input", 0.15, 3600.0, True),  # data that cannot be read
    FailureClass("storage", 0.10, 10_800.0, False),  # a checkpoint that cannot be written
    FailureClass("network", 0.10, 21_600.0, False),
    FailureClass("machine", 0.05, 43_200.0, False),
)
SPREAD = 1.0  # standard deviation of the logarithm of the time to failure
_FEWEST, _PER_DOUBLING, _MOST = 0.10, 0.05, 0.50  # part of the jobs that fail: on one GPU, per doubling, at most


def with_failures(work: Workload, text: str, seed: int) -> Workload:
    """The same jobs with attempts that fail, `attempts=3` at most per job; jobs with attempts keep theirs."""
    params = typed_params(Spec.parse(f"fail-jobs:{text}" if text else "fail-jobs"), {"attempts": 3}, "option")
    attempts = int(str(params["attempts"]))
    if attempts < 1:
        raise InputError(f"--fail-jobs '{text}': attempts={attempts} must be 1 or more")
    draw = np.random.default_rng([seed, 5077])
    rows, largest = len(work), len(CLASSES)
    chance = np.minimum(_FEWEST + _PER_DOUBLING * np.log2(np.maximum(work.gpus, 1)), _MOST)
    fails = draw.random(rows) < chance
    kind = draw.choice(largest, rows, p=[one.part for one in CLASSES])
    shows_s = np.array([one.median_s for one in CLASSES])[kind, None]
    shows_s = np.maximum(np.floor(shows_s * np.exp(SPREAD * draw.standard_normal((rows, attempts)))), 1.0)
    code, status, found = np.zeros(rows, np.int64), work.status.copy(), dict(work.attempts)
    for row in np.flatnonzero(fails).tolist():
        again = attempts - 1 if CLASSES[kind[row]].comes_back else min(1, attempts - 1)
        failed = _that_fit(shows_s[row, :again], float(work.duration_s[row]))
        if row in work.attempts or not failed:
            continue
        found[row], code[row] = failed, kind[row] + 1
        if CLASSES[kind[row]].comes_back and len(failed) == attempts - 1:
            status[row] = Status.FAILED
    note = f"{int((code > 0).sum())} jobs were given failing attempts, of classes and at times of our own"
    extra = {**work.extra, COLUMN: code}
    return replace(work, attempts=found, extra=extra, status=status, notes=(*work.notes, note))


def _that_fit(shows_s: Floats, duration_s: float) -> tuple[float, ...]:
    """As many as end before the job does."""
    return tuple(shows_s[np.cumsum(shows_s) < duration_s].tolist())


def failure_figures(work: Workload) -> dict[str, int | float]:
    """Failed attempts and their GPU-seconds by class, where a workload has classes."""
    code = work.extra.get(COLUMN)
    if code is None:
        return {}
    trials, gpu_s = np.zeros(len(CLASSES) + 1, np.int64), np.zeros(len(CLASSES) + 1)
    for row, lengths in work.attempts.items():
        trials[int(code[row])] += len(lengths)
        gpu_s[int(code[row])] += float(work.gpus[row]) * sum(lengths)
    names = ("of_the_log", *(one.name for one in CLASSES))
    return {
        **{f"failed_attempts_{name}": int(trials[k]) for k, name in enumerate(names)},
        **{f"failed_gpu_s_{name}": float(gpu_s[k]) for k, name in enumerate(names)},
    }
