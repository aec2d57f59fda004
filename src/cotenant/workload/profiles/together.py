"""What jobs do to each other on one GPU: measured pairs where there are some, a formula from solo features elsewhere.

The formula: a job that keeps the GPU busy for a share u of its time is slowed beside one with v by

    slowdown = 1 + a * max(0, u + v - 1) + b * u * v

a and b by least squares over the measured pairs, both not negative. u is GPU time over step time of the roofline
model. Speeds of accumulated sub-batches and memory come from the measured batch curves, by interpolation. Memory
curves (speed when a part of the memory lies on the host) are those of AntMan, OSDI'20, figure 10, read off by eye;
a model of which nothing is known is taken as the most sensitive of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.together import CURVE, LEVELS, Together
from cotenant.core.workload import Floats
from cotenant.workload.profiles import measured
from cotenant.workload.profiles.base import Kind, Pairs, Profile
from cotenant.workload.profiles.roofline import (
    CONTEXT_MIB,
    GPUS,
    GpuCeilings,
    Step,
    gpu_seconds,
    shared_ratios,
    step_seconds,
)

# AntMan, figure 10: speed at 1, 10, 20, ..., 100 % of the memory a job asks for.
MEMORY_CURVES: dict[str, tuple[float, ...]] = {
    "sr": (0.30, 0.77, 0.80, 0.82, 0.83, 0.88, 0.885, 0.89, 0.94, 0.94, 1.0),
    "vgg": (0.03, 0.03, 0.04, 0.05, 0.07, 0.98, 0.98, 0.985, 0.985, 1.0, 1.0),
    "resnet": (0.02, 0.02, 0.02, 0.02, 0.02, 0.025, 0.03, 0.035, 0.14, 0.34, 1.0),
}
_GIB = 1 / 1024  # of a MiB


def memory_curve(model: str) -> Floats:
    """Speed over memory limits of a model, by its name."""
    for name, curve in MEMORY_CURVES.items():
        if model.lower().startswith(name):
            return np.array(curve)
    return np.array(MEMORY_CURVES["resnet"])


def busy_share(step: Step, seen: GpuCeilings, gpu: GpuCeilings) -> float:
    """Share of a step in which its GPU is busy, alone."""
    return min(gpu_seconds(step, seen, gpu) / step_seconds(step, seen, gpu), 1.0)


def formula(u: Any, v: Any, factors: tuple[float, float]) -> Any:
    """Slowdown of a job of busy share u beside one of v."""
    return 1 + factors[0] * np.maximum(0.0, u + v - 1) + factors[1] * u * v


def fit_formula(u: Floats, v: Floats, slowdown: Floats) -> tuple[float, float]:
    """Least squares over measured pairs, without negative factors."""
    features = np.stack([np.maximum(0.0, u + v - 1), u * v], axis=1)
    best: tuple[float, float, float] = (np.inf, 0.0, 0.0)
    for kept in ([0, 1], [0], [1]):
        answer = np.linalg.lstsq(features[:, kept], slowdown - 1, rcond=None)[0]
        factors = np.zeros(2)
        factors[kept] = np.maximum(answer, 0.0)
        error = float(((features @ factors - (slowdown - 1)) ** 2).sum())
        best = min(best, (error, float(factors[0]), float(factors[1])))
    return best[1], best[2]


@lru_cache(maxsize=128)
def fitted(sharing: str, without: frozenset[str] = frozenset()) -> tuple[float, float]:
    """The formula's factors for one way of sharing, from the measured pairs; without those of some models."""
    u, v, slow, names = pair_features(sharing)
    kept = np.array([without.isdisjoint(pair) for pair in names])
    return fit_formula(u[kept], v[kept], slow[kept])


def pair_features(sharing: str) -> tuple[Floats, Floats, Floats, list[tuple[str, str]]]:
    """Busy shares of both, and the slowdown of the first, for every measured pair in both directions."""
    seen = GPUS[measured.REFERENCE]
    rows = []
    names = []
    for (a, b), (ratio, _) in measured.pairs(sharing).items():
        steps = [measured.steps()[name, measured.default_batch(name)] for name in (a, b)]
        rows.append((*(busy_share(step, seen, seen) for step in steps), 1 / ratio))
        names.append((a, b))
    table = np.array(rows)
    return table[:, 0], table[:, 1], table[:, 2], names


def h200_together(
    sharing: str, kinds: Sequence[Kind], keys: Sequence[tuple[str, int] | None], types: Sequence[str],
    soft: bool = False,
) -> Together:  # fmt: skip
    """Sharing between all kinds that the profile knows, on every type; with `soft` whether memory holds them or not."""
    seen = GPUS[measured.REFERENCE]
    distinct = list(dict.fromkeys(key for key in keys if key is not None))
    table, guess = np.zeros((2, len(distinct), len(distinct), len(types)))
    for a, one in enumerate(distinct):
        for b, two in enumerate(distinct):
            steps = measured.steps()[one], measured.steps()[two]
            ratios, guessed = _pair_ratios(sharing, one, two), _guessed_ratios(sharing, one, two)
            for column, kind in enumerate(types):
                table[a, b, column] = shared_ratios(ratios, steps, seen, GPUS[kind], soft)[0]
                guess[a, b, column] = shared_ratios(guessed, steps, seen, GPUS[kind], soft)[0]
    place = np.array([distinct.index(key) if key is not None else -1 for key in keys], np.int64)
    ratio, believed = np.zeros((2, len(kinds), len(kinds), len(types)))
    some = np.flatnonzero(place >= 0)
    ratio[np.ix_(some, some)] = table[np.ix_(place[some], place[some])]
    believed[np.ix_(some, some)] = guess[np.ix_(place[some], place[some])]
    pace, memory = np.zeros((len(kinds), LEVELS)), np.zeros((len(kinds), LEVELS))
    pace[:, 0] = 1.0
    eased = np.ones((len(kinds), LEVELS))
    busy, curve, least = np.ones(len(kinds)), np.empty((len(kinds), len(CURVE))), np.ones(len(kinds))
    for at, key in enumerate(keys):
        curve[at] = memory_curve(kinds[at][0])
        if key is not None:
            pace[at], memory[at] = sub_batches(*key)
            eased[at] = easing(*key)
            busy[at] = measured.busy()[key]
            least[at] = least_part(*key)
    gib = np.array([GPUS[kind].memory_mib * _GIB for kind in types])
    return Together(ratio, pace, memory, busy, gib, curve, guess=believed, alike=place, eased=eased, least=least)


def _pair_ratios(sharing: str, one: tuple[str, int], two: tuple[str, int]) -> tuple[float, float]:
    """Speeds of two jobs on the measured type: from the table at its batch sizes, by the formula at others."""
    if all(batch == measured.default_batch(model) for model, batch in (one, two)):
        return measured.pairs(sharing)[one[0], two[0]]
    return _by_formula(fitted(sharing), one, two)


def _guessed_ratios(sharing: str, one: tuple[str, int], two: tuple[str, int]) -> tuple[float, float]:
    """The same as somebody would guess who has never seen either model in company."""
    return _by_formula(fitted(sharing, frozenset((one[0], two[0]))), one, two)


def _by_formula(factors: tuple[float, float], one: tuple[str, int], two: tuple[str, int]) -> tuple[float, float]:
    seen = GPUS[measured.REFERENCE]
    u, v = (busy_share(measured.steps()[key], seen, seen) for key in (one, two))
    return float(1 / formula(u, v, factors)), float(1 / formula(v, u, factors))


def guess_from_busy(ratio: NDArray[np.float64], busy: Floats) -> NDArray[np.float64]:
    """Ratios by the formula (of pairs under MPS) for kinds of which only busy shares are known; 0 where `ratio` is."""
    guess = 1 / formula(busy[:, None], busy[None, :], fitted("mps"))
    return np.where(ratio > 0, guess[:, :, None], 0.0)


def sub_batches(model: str, batch: int) -> tuple[Floats, Floats]:
    """Speed and GiB per GPU when a batch is cut into 1, 2, 4, ... sub-batches; speed 0 where it cannot be halved."""
    points = sorted(size for name, size in measured.steps() if name == model)
    steps = [measured.steps()[model, size] for size in points]
    seconds = [max(step.host_s, step.gpu_s) for step in steps]
    mib = [step.memory_mib + CONTEXT_MIB for step in steps]
    pace, memory = np.zeros(LEVELS), np.zeros(LEVELS)
    whole_s = float(np.interp(batch, points, seconds))
    for level in range(LEVELS):
        size, rest = divmod(batch, 2**level)
        if rest or size < 1:
            break
        pace[level] = min(whole_s / (2**level * _extended(size, points, seconds)), 1.0)
        memory[level] = _extended(size, points, mib) * _GIB
    return pace, memory


def least_part(model: str, batch: int) -> float:
    """Part of its memory that a model cannot do without: not what AdamW remembers (8 bytes per parameter), nor half of
    what grows with the batch (activations); both can lie on the host."""
    points = sorted(size for name, size in measured.steps() if name == model)
    mib = [measured.steps()[model, size].memory_mib for size in points]
    step = measured.steps()[model, batch]
    slope = (mib[-1] - mib[0]) / (points[-1] - points[0])
    gone_mib = 8 * step.parameters / 2**20 + 0.5 * max(slope, 0.0) * batch
    whole = step.memory_mib + CONTEXT_MIB
    return max(whole - gone_mib, CONTEXT_MIB) / whole


def easing(model: str, batch: int) -> Floats:
    """Part of what a pair loses that is left when a batch is cut into 1, 2, 4, ...: smaller steps leave the GPU idle
    for longer, and by the formula slowdowns go with the product of both busy shares."""
    points = sorted(size for name, size in measured.steps() if name == model)
    seen = GPUS[measured.REFERENCE]
    shares = [busy_share(measured.steps()[model, size], seen, seen) for size in points]
    whole = float(np.interp(batch, points, shares))
    return np.array([min(_extended(batch / 2**level, points, shares) / whole, 1.0) for level in range(LEVELS)])


def _extended(x: float, points: Sequence[float], values: Sequence[float]) -> float:
    """Interpolation; below the first point along the first line, but not under half the first value."""
    if x >= points[0] or len(points) < 2:
        return float(np.interp(x, points, values))
    slope = (values[1] - values[0]) / (points[1] - points[0])
    return float(max(values[0] - max(slope, 0.0) * (points[0] - x), values[0] / 2))


def of_pairs(pairs: Pairs, speed: Floats, kinds: Sequence[Kind]) -> Together:
    """Sharing as far as a table of pairs (equal GPU counts) knows it; memory is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.minimum(np.where(speed[:, None, :, 0] > 0, pairs.pair / speed[:, None, :, 0], 0.0), 1.0)
    curve = np.array([memory_curve(model) for model, _ in kinds])
    return Together.of_ratio(ratio, curve, guess=guess_from_busy(ratio, np.ones(len(kinds))))


def nothing_known(profile: Profile) -> Together:
    """Jobs of which nothing is known: they can take turns on a GPU, but not run side by side."""
    kinds, types = profile.speed.shape[:2]
    return Together.of_ratio(np.zeros((kinds, kinds, types)), np.ones((kinds, len(CURVE))))
