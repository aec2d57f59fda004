"""How fast an elastic job trains on so many GPUs with such a batch, and how much each sample still helps.

Pollux, OSDI'21: a step takes T = (T_grad^g + T_sync^g)^(1/g) seconds, with T_grad = a_c + b_c m for m samples per GPU,
T_sync = a + b max(r - 2, 0) for r > 1 GPUs (one pair of parameters within a node, another across nodes) and g >= 1 for
how far both overlap. Of M samples a share EFF = (phi + M0) / (phi + M) counts as much as at the first batch M0; phi is
the gradient noise in samples. Goodput is samples per second times EFF. All functions take arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from cotenant.core.workload import Floats

_PARAMETERS = 7
_FIT_ROUNDS = 60
_START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01)


@dataclass(frozen=True, slots=True)
class StepTime:
    """The seven parameters of a step; seconds, and seconds per sample or per GPU."""

    a_c: float
    b_c: float
    a_r: float
    b_r: float
    a_n: float
    b_n: float
    gamma: float

    def step_s(self, local: np.ndarray | float, gpus: np.ndarray | float, nodes: np.ndarray | float = 1) -> Floats:
        """Seconds of one step with `local` samples per GPU."""
        local, gpus, nodes = (np.asarray(value, np.float64) for value in (local, gpus, nodes))
        grad = self.a_c + self.b_c * local
        more = np.maximum(gpus - 2.0, 0.0)
        sync = np.where(nodes > 1, self.a_n + self.b_n * more, self.a_r + self.b_r * more)
        sync = np.where(gpus > 1, sync, 0.0)
        return np.asarray((grad**self.gamma + sync**self.gamma) ** (1.0 / self.gamma))

    def throughput(self, local: np.ndarray | float, gpus: np.ndarray | float, nodes: np.ndarray | float = 1) -> Floats:
        """Samples per second of the whole gang."""
        return np.asarray(np.asarray(local) * np.asarray(gpus) / self.step_s(local, gpus, nodes))


def efficiency(noise: float, first: float, batch: np.ndarray | float) -> Floats:
    """What a sample of a batch counts for, against one of the first batch; 1 there, less for larger ones."""
    return np.asarray((noise + first) / (noise + np.maximum(np.asarray(batch, np.float64), first)))


def goodput(
    step: StepTime, noise: float, first: float, local: np.ndarray | float, gpus: np.ndarray | float,
    nodes: np.ndarray | float = 1,
) -> Floats:  # fmt: skip
    """Samples per second, each counted by its efficiency."""
    batch = np.asarray(local, np.float64) * np.asarray(gpus)
    return np.asarray(step.throughput(local, gpus, nodes) * efficiency(noise, first, batch))


def linear_batch(base: int, base_lr: float, max_lr: float, gpus: int) -> tuple[int, float]:
    """Samples per GPU and learning rate on so many GPUs (ONES): both grow with the gang up to the largest rate, then
    the global batch stays."""
    if base_lr * gpus <= max_lr * (1 + 1e-9):
        return base, base_lr * gpus
    most = int(np.floor(base * max_lr / base_lr + 1e-9))
    return max(most // gpus, 1), max_lr


def fit(seen: tuple[tuple[float, int, int, float], ...]) -> StepTime:
    """Parameters from observed steps (samples per GPU, GPUs, nodes, seconds), by damped least squares on logarithms.

    Levenberg-Marquardt over the logarithms of the parameters, with weak pulls towards no communication where nothing
    of the kind was seen (an optimistic prior) and towards no overlap. The same observations are fitted once.
    """
    return _fit(tuple(sorted(set(seen))))


@cache
def _fit(seen: tuple[tuple[float, int, int, float], ...]) -> StepTime:
    local, gpus, nodes, seconds = (np.array(column, np.float64) for column in zip(*seen, strict=True))
    inside, across = bool(((gpus > 1) & (nodes <= 1)).any()), bool(((gpus > 1) & (nodes > 1)).any())
    prior = np.log(np.array([*_START, 0.5]))
    scale = float(seconds.min())
    prior[0], prior[1] = np.log(scale / 2), np.log(scale / 2 / max(float(local.mean()), 1.0))
    prior[2:4] = np.log(scale * (0.1 if inside else 1e-4))
    prior[4:6] = np.log(scale * (0.1 if across else 1e-4))
    pull = np.array([1e-3, 1e-3, *([3e-3] * 2 if inside else [3.0] * 2), *([3e-3] * 2 if across else [3.0] * 2), 0.01])
    target = np.log(seconds)

    def residual(theta: Floats) -> Floats:
        return np.concatenate([np.log(_of(theta).step_s(local, gpus, nodes)) - target, pull * (theta - prior)])

    theta, damping = prior.copy(), 1e-2
    value = residual(theta)
    for _ in range(_FIT_ROUNDS):
        slope = np.stack([(residual(theta + step) - value) / 1e-5 for step in 1e-5 * np.eye(_PARAMETERS)], axis=1)
        normal = slope.T @ slope
        move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slope.T @ value)
        trial = residual(theta + move)
        if trial @ trial < value @ value:
            done = value @ value - trial @ trial < 1e-12
            theta, value, damping = theta + move, trial, max(damping / 3, 1e-9)
            if done:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return _of(theta)


def _of(theta: Floats) -> StepTime:
    """Parameters from their logarithms; the last is the logarithm of gamma - 1, at most 10."""
    values = np.exp(np.clip(theta, -40.0, 10.0))
    a_c, b_c, a_r, b_r, a_n, b_n = values[:6].tolist()
    return StepTime(a_c, b_c, a_r, b_r, a_n, b_n, float(min(1.0 + values[6], 10.0)))
