"""How far a job has come: a Beta distribution whose shape is learned from finished jobs (ONES, SC'21).

Progress rho ~ Beta(alpha, beta): alpha = epochs processed, beta = 1 + max(0, f(x)) with a small network f of
[log samples per epoch, first loss (at most 100), epochs, 1 - loss / first loss, accuracy]. It is fitted to the
likelihood of processed over total samples of finished jobs, by Adam, afresh whenever more jobs have ended.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Floats

HIDDEN, ROWS, BATCH, EPOCHS = 64, 1000, 256, 40
_RATE, _DECAY = 3e-3, 1e-4
_LEAST = 1e-6


def features(epoch_size: Floats, first_loss: Floats, epochs: Floats, loss: Floats, accuracy: Floats) -> np.ndarray:
    """The five inputs of each job; the same when learning and when asking."""
    fallen = 1.0 - loss / np.maximum(first_loss, 1e-12)
    return np.stack([np.log(epoch_size), np.minimum(first_loss, 100.0), epochs, fallen, accuracy], axis=1)


class ProgressModel:
    """The predictor. Until a job has finished, progress is read off the fall of the loss alone."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 47])
        self._seed = seed
        self._x: list[np.ndarray] = []
        self._rho: list[np.ndarray] = []
        self._net: tuple[np.ndarray, ...] | None = None
        self._mean, self._std = np.zeros(5), np.ones(5)

    def finish(self, x: np.ndarray, rho: Floats) -> None:
        """A job has ended: what it looked like after each look, and the share of its samples then done."""
        if len(rho):
            self._x.append(x)
            self._rho.append(np.clip(rho, 0.01, 0.99))
            self._fit()

    def shape(self, x: np.ndarray) -> tuple[Floats, Floats]:
        """Alpha and beta of each job."""
        alpha = np.maximum(x[:, 2], _LEAST)
        if self._net is None:
            share = np.clip(x[:, 3], 0.05, 0.95)
            return alpha, np.maximum(1.0, alpha * (1.0 / share - 1.0))
        return alpha, 1.0 + np.maximum(self._out(x), 0.0)

    def draw(self, x: np.ndarray, sample: bool) -> Floats:
        """Progress of each job: drawn, or the mean."""
        alpha, beta = self.shape(x)
        return np.asarray(self._rng.beta(alpha, beta) if sample else alpha / (alpha + beta))

    def _out(self, x: np.ndarray) -> Floats:
        assert self._net is not None
        w1, b1, w2, b2 = self._net
        return np.asarray(np.tanh(((x - self._mean) / self._std) @ w1 + b1) @ w2 + b2)

    def _fit(self) -> None:
        """Adam on the negative log-likelihood, from fresh weights."""
        rng = np.random.default_rng([self._seed, len(self._rho)])
        x, rho = np.concatenate(self._x), np.concatenate(self._rho)
        if len(x) > ROWS:
            rows = rng.choice(len(x), ROWS, replace=False)
            x, rho = x[rows], rho[rows]
        self._mean, self._std = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
        z, alpha = (x - self._mean) / self._std, np.maximum(x[:, 2], _LEAST)
        guess = float(np.mean(alpha * (1 / rho - 1)))
        net = [rng.normal(0, 0.3, (5, HIDDEN)), np.zeros(HIDDEN), rng.normal(0, 0.1, HIDDEN), np.array(guess)]
        first, second = [np.zeros_like(w) for w in net], [np.zeros_like(w) for w in net]
        step = 0
        for _ in range(EPOCHS):
            order = rng.permutation(len(z))
            for start in range(0, len(z), BATCH):
                rows = order[start : start + BATCH]
                step += 1
                for k, slope in enumerate(_gradient(net, z[rows], alpha[rows], rho[rows])):
                    first[k] = 0.9 * first[k] + 0.1 * slope
                    second[k] = 0.999 * second[k] + 0.001 * slope**2
                    move = first[k] / (1 - 0.9**step) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
                    rate = _RATE * (max(guess, 1.0) if k == 3 else 1.0)
                    net[k] = net[k] - rate * (move + _DECAY * net[k])
        self._net = tuple(net)


def _gradient(net: list[np.ndarray], z: np.ndarray, alpha: Floats, rho: Floats) -> tuple[np.ndarray, ...]:
    """Of the mean of -log Beta(rho; alpha, 1 + max(0, f(z))) over the weights."""
    w1, b1, w2, b2 = net
    hidden = np.tanh(z @ w1 + b1)
    out = hidden @ w2 + b2
    beta = 1.0 + np.maximum(out, 0.0)
    slope = (digamma(beta) - digamma(alpha + beta) - np.log1p(-rho)) / len(z)
    slope = np.where((out > 0) | (slope < 0), slope, 0.0)  # below 0 only pushes upwards count
    back = slope[:, None] * w2[None, :] * (1.0 - hidden**2)
    return z.T @ back, back.sum(axis=0), hidden.T @ slope, np.array(slope.sum())


def digamma(x: Floats) -> Floats:
    """Derivative of log gamma for x > 0: six steps of the recurrence, then the asymptotic series."""
    x = np.asarray(x, np.float64)
    below = sum(1.0 / (x + k) for k in range(6))
    x = x + 6.0
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    return np.asarray(np.log(x) - 0.5 / x - series - below)
