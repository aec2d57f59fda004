"""The evolution of ONES with another score: completions per second, from goodput and what a change costs.

Ours, nearer to Pollux: schedules are judged by goodput (samples per second by a fitted model of the step, each counted
by what it helps at that batch) over the work left, empty GPUs go where they gain most, changes are charged, and whoever
has not finished an epoch since its last change keeps its GPUs while the others change.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.spec import Value
from cotenant.core.training import Training
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context
from cotenant.policies.ones.evolution import Limits, counts_of, order_by_gain
from cotenant.policies.ones.evolving import YOUNG, Evolving
from cotenant.policies.ones.predictor import features
from cotenant.policies.ones.scaling import TIMES_ASKED, at_least
from cotenant.policies.ones.throughput import Goodputs

_KEPT_S = 60.0  # how long a schedule is taken to last when changes are charged


class OnesGoodput(Evolving):
    """Elastic sizes and batches by evolution of schedules; most completions per second by goodput win."""

    name = "ones-goodput"
    source = "after Bian et al., SC'21, and Qiao et al., OSDI'21"
    said = "in the best schedule found, by the work that jobs are predicted to have left, others have the rest"
    defaults: ClassVar[dict[str, Value]] = {
        "population": 16,
        "interval": 5.0,  # seconds between generations
        "crossover": 0.5,
        "mutation": 0.3,
        "progress": "mean",  # or sample: how progress is read off its distribution
        "generations": 1,  # per decision
    }

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        self.checked()

    def begin(self, context: Context) -> None:
        """No step has been seen."""
        super().begin(context)
        self._goodputs: Goodputs | None = None

    def wanted(self, view: View, training: Training, which: Ints, gpus: int) -> list[tuple[int, int]]:
        """The winner's sizes, of those that may change by now."""
        rows = view.rows[which]
        held = np.where(view.running[which], view.gpus[which], 0)
        epochs, ids = training.epochs[rows], rows.tolist()
        x = features(
            training.epoch_size[rows], training.first_loss[rows], epochs, training.loss[rows], training.accuracy[rows]
        )
        self.learn(ids, x, training.samples[rows], training.epoch_size[rows])
        if gpus <= 0:  # jobs that cannot change their size have everything
            return []
        young = epochs < YOUNG
        told = training.left(rows)
        left = np.where(np.isnan(told), training.samples[rows] * (1.0 / self.drawn(x) - 1.0), told)
        limits, cost = self._judge(view, training, which, held, epochs, np.where(young, 0.0, left), gpus)
        target = counts_of(self.evolved(ids, gpus, limits, cost)[:1], len(rows))[0]
        final = self.sizes.apply(ids, held, target, epochs, gpus)
        at_least(final, view.size_limits(rows)[0], held, gpus)
        return [(int(row), int(size)) for row, size in zip(rows, final, strict=True) if size > 0]

    def _judge(
        self, view: View, training: Training, which: Ints, held: Ints, epochs: Floats, left: Floats, gpus: int
    ) -> tuple[Limits, np.ndarray]:
        """What each size of each job is worth, and in which order empty GPUs are filled."""
        rows, young = view.rows[which], epochs < YOUNG
        most = view.size_limits(rows)[1]
        cap, train = (np.minimum(limit, most) for limit in self.sizes.limits(view, which, held, epochs, gpus))
        self._goodputs = self._goodputs or Goodputs(view.site.largest_node)
        wide = max(gpus, int(held.max(initial=1)))  # rigid jobs may have taken what these still hold
        rate, good = self._goodputs.tables(training, rows, wide)
        at = np.maximum(held, 1)
        jobs = np.arange(len(rows))
        worth = good[jobs, at] / np.where(rate[jobs, at] > 0, rate[jobs, at], 1.0)  # of a sample at the present size
        pace = good / np.maximum(left * worth, 1e-9)[:, None]  # completions per second
        pace[young] = 0.0
        explored = np.minimum(np.maximum(train, 2 * self._goodputs.largest(training, rows)), gpus)
        cap = np.maximum(cap, np.minimum(explored, TIMES_ASKED * view.asked_gpus[which]) * ~young)
        cap = np.minimum(cap, most)
        order = order_by_gain(np.diff(pace[:, : gpus + 1], axis=1), young, cap)
        cost = pace_cost(pace, held, training.resize_s, view.restore_s[which])
        return Limits(cap, cap, young, *order), np.ascontiguousarray(cost[:, : gpus + 1])


def pace_cost(pace: np.ndarray, held: Ints, resize_s: float, restore_s: Floats) -> np.ndarray:
    """Minus the completions per second, as if a schedule were kept for a while: a change pauses, a stop restores."""
    sizes = np.arange(pace.shape[1])[None, :]
    changed = (held[:, None] > 0) & (sizes != held[:, None])
    cost = -np.where(changed, pace * max(1.0 - resize_s / _KEPT_S, 0.0), pace)
    now = pace[np.arange(len(held)), held]
    cost[:, 0] = np.where(held > 0, now * restore_s / _KEPT_S, 0.0)
    return np.asarray(cost)
