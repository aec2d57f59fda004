"""What a solve gives back, and the check that it may be used.

Notation of all solvers: n jobs, K GPU types; `rates[i, j]` is the rate of job i while it holds its whole gang on
type j (0: it cannot run there), `gangs[i]` its GPUs, `capacity[j]` the GPUs of the type, `x[i, j]` the fraction of
wall time. Feasible: x >= 0, each job's row sums to at most 1, the GPUs in use are at most the capacity, and cells
with rate 0 are empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cotenant.solvers.errors import SolverError

Floats = NDArray[np.float64]
Matrix = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-7
"""Relative excess that `check_feasible` accepts in any row."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Time fractions with a certificate: the optimum lies between `value` and `bound`."""

    x: Floats
    """n x K fractions of time alone on a type."""
    value: float
    """What `x` attains."""
    bound: float
    """What no allocation can beat."""
    prices: Floats
    """Per GPU of each type. Max-min family: scaled so that prices . capacity = 1; max-sum: value per GPU."""
    method: str
    seconds: float
    gap: float
    """|bound - value| / |bound|."""
    left_out: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Jobs that can run on no type; their rows are 0."""
    pairs: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """P x 2 job numbers (first < second) that share GPUs; empty without space sharing."""
    pair_x: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """P x K fractions of time of the pairs."""

    def __post_init__(self) -> None:
        if not len(self.pairs):
            object.__setattr__(self, "pair_x", np.zeros((0, self.x.shape[1])))

    @classmethod
    def nothing(cls, inst: Instance, value: float, method: str, seconds: float, left_out: Ints | None = None) -> Answer:
        """Nobody needs anything, or nobody can run."""
        left_out = inst.left_out if left_out is None else left_out
        return cls(
            np.zeros(inst.rates.shape), value, value, np.zeros(len(inst.capacity)), method, seconds, 0.0, left_out
        )

    @property
    def note(self) -> str:
        """How it was found, and how good it is, in a few words."""
        return f"{self.method}, within {self.gap:.1e} of the best" if self.gap > 0.0 else f"{self.method}, exact"


@dataclass(frozen=True, slots=True)
class Instance:
    """Checked input: what cannot be used is already 0."""

    rates: Floats
    gangs: Floats
    capacity: Floats
    best: Floats
    """Largest rate of each job."""

    @property
    def left_out(self) -> Ints:
        """Jobs that can run nowhere."""
        return np.flatnonzero(self.best <= 0.0)


def instance(rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike) -> Instance:
    """Check shapes and signs; empty the cells of types that are too small for the gang."""
    a = np.array(rates, dtype=np.float64, ndmin=2)
    n_gpus = np.array(capacity, dtype=np.float64, ndmin=1)
    s = np.array(gangs, dtype=np.float64, ndmin=1)
    if a.size == 0:
        a = a.reshape(len(s), len(n_gpus))
    if a.shape != (len(s), len(n_gpus)):
        raise SolverError(f"rates are {a.shape[0]} x {a.shape[1]}, but there are {len(s)} gangs, {len(n_gpus)} types")
    if not (np.isfinite(a).all() and np.isfinite(s).all() and np.isfinite(n_gpus).all()):
        raise SolverError("rates, gangs and capacities must be finite")
    if (a < 0).any() or (n_gpus < 0).any() or (s <= 0).any():
        raise SolverError("rates and capacities must not be negative, gangs must be positive")
    a[s[:, None] > n_gpus[None, :]] = 0.0
    best = a.max(axis=1) if a.shape[1] else np.zeros(len(s))
    return Instance(a, s, n_gpus, best)


def column(values: ArrayLike | None, n: int, name: str) -> Floats:
    """One number per job (ones if None), checked."""
    if values is None:
        return np.ones(n)
    out = np.broadcast_to(np.asarray(values, dtype=np.float64), (n,)).copy()
    if not np.isfinite(out).all() or (out < 0).any():
        raise SolverError(f"{name} must be finite and not negative")
    return out


def relative_gap(value: float, bound: float) -> float:
    """Distance of the two ends of a certificate."""
    if value == bound:
        return 0.0
    return abs(bound - value) / max(abs(bound), 1e-300)


def excess(
    x: Floats, gangs: Floats, capacity: Floats, pairs: Ints | None = None, pair_x: Floats | None = None
) -> tuple[float, float]:
    """How far the worst job row is above 1, and the worst type above its capacity (relative)."""
    time = x.sum(axis=1)
    used = gangs @ x
    if pairs is not None and pair_x is not None and len(pairs):
        rows = pair_x.sum(axis=1)
        time = time + np.bincount(pairs.ravel(), np.repeat(rows, 2), len(x))
        used = used + gangs[pairs[:, 0]] @ pair_x
    over_time = float(time.max(initial=0.0)) - 1.0
    over_gpus = float(((used - capacity) / np.maximum(capacity, 1.0)).max(initial=-1.0))
    return over_time, over_gpus


def check_feasible(answer: Answer, inst: Instance, *, tolerance: float = TOLERANCE) -> Answer:
    """The same answer with rounding noise removed; `SolverError` if it breaks a rule by more than noise."""
    x, y = answer.x, answer.pair_x
    if x.shape != inst.rates.shape:
        raise SolverError(f"{answer.method}: answer has shape {x.shape}, the instance {inst.rates.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise SolverError(f"{answer.method}: fractions are not finite")
    if x.min(initial=0.0) < -tolerance or y.min(initial=0.0) < -tolerance:
        raise SolverError(f"{answer.method}: negative fraction {min(x.min(initial=0.0), y.min(initial=0.0)):.3g}")
    blocked = inst.rates <= 0.0
    if (x[blocked] > tolerance).any():
        raise SolverError(f"{answer.method}: time on a type that the job cannot use")
    x = np.where(blocked, 0.0, np.clip(x, 0.0, None))
    y = np.clip(y, 0.0, None)
    over_time, over_gpus = excess(x, inst.gangs, inst.capacity, answer.pairs, y)
    if over_time > tolerance or over_gpus > tolerance:
        what = "a job holds more than all of its time" if over_time > over_gpus else "more GPUs used than there are"
        raise SolverError(f"{answer.method}: {what} (by {max(over_time, over_gpus):.3g})")
    worst = max(over_time, over_gpus, 0.0)
    if worst > 0.0:
        x, y = x / (1.0 + worst), y / (1.0 + worst)
    return replace(answer, x=x, pair_x=y)
