"""ONES as published: evolve whole schedules, deploy the one with the least predicted GPU time left (SC'21; artifact).

What a job has told is what it told at the end of its last epoch: samples, loss, accuracy; how far it has come is drawn
from a Beta distribution, even where a job says how long it is. The score (SRUF) knows neither the cost of a change nor
what a batch is worth; new jobs add nothing to it. A winner is deployed whole, when everybody whom it touches has
finished an epoch since the last deployment. Fixed of the artifact: the predictor is asked with what it was taught with,
and two epochs before growing are counted from the last change. Only the winner gets places: scores do not need them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Value
from cotenant.core.training import Training
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context
from cotenant.policies.ones.deploy import Deployment
from cotenant.policies.ones.evolution import Limits, counts_of, order_by_time
from cotenant.policies.ones.evolving import YOUNG, Evolving
from cotenant.policies.ones.predictor import features
from cotenant.policies.ones.scaling import at_least
from cotenant.policies.ones.throughput import sruf, throughputs


class Ones(Evolving):
    """Elastic sizes by evolution of schedules, deployed whole at epoch ends; least predicted GPU time left wins."""

    name = "ones"
    source = "Bian et al., SC'21"
    said = (
        "the schedule with the least GPU time predicted to be left gives others the rest (jobs below two epochs cost it"
        " nothing), and is deployed when all whom it changes have finished an epoch"
    )
    defaults: ClassVar[dict[str, Value]] = {
        "population": 16,
        "interval": 5.0,  # seconds between generations: the artifact sleeps 1 s and then computes for 1 to 6
        "crossover": 0.5,
        "mutation": 0.3,
        "progress": "sample",  # or mean: how progress is read off its distribution
        "generations": 1,  # per decision
        "gate": 1.0,  # epochs that everybody touched has to finish before the next deployment
    }

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        self.checked()
        if not self.number("gate") >= 0:
            raise InputError(f"policy 'ones': gate={self.params['gate']} must be at least 0")

    def begin(self, context: Context) -> None:
        """Nothing is deployed."""
        super().begin(context)
        self._deployment = Deployment(self.number("gate"))
        self._told: dict[int, Floats] = {}  # finished epochs, samples, loss, accuracy at the end of the last one

    def wanted(self, view: View, training: Training, which: Ints, gpus: int) -> list[tuple[int, int]]:
        """The winner's sizes, or those of now until the gate opens."""
        rows = view.rows[which]
        ids = rows.tolist()
        epochs, samples, loss, accuracy = self._at_epochs(training, rows).T
        x = features(training.epoch_size[rows], training.first_loss[rows], epochs, loss, accuracy)
        self.learn(ids, x, samples, training.epoch_size[rows])
        if gpus <= 0:  # jobs that cannot change their size have everything
            return []
        held = np.where(view.running[which], view.gpus[which], 0)
        young = epochs < YOUNG
        cap, train = self.sizes.limits(view, which, held, epochs, gpus)
        fewest, most = view.size_limits(rows)
        cap, train = np.minimum(cap, most), np.minimum(train, most)
        left = np.where(young, 0.0, samples * (1.0 / self.drawn(x) - 1.0))
        rate = np.stack([throughputs(training.seen[row], gpus) for row in ids])
        alone_s = np.divide(left, rate[:, 1], out=np.zeros(len(ids)), where=rate[:, 1] > 0)
        limits = Limits(cap, train, young, *order_by_time(alone_s, young, cap, train))
        target = counts_of(self.evolved(ids, gpus, limits, sruf(rate, left))[:1], len(ids))[0]
        at_least(target, fewest, held, gpus)
        final, whole = self._deployment.sizes(ids, held, target, epochs, gpus)
        self.sizes.changed(ids, held, final, epochs)
        if whole:
            self.sizes.passed_over(ids, (held == 0) & (final == 0) & (samples > 0))
        return [(int(row), int(size)) for row, size in zip(rows, final, strict=True) if size > 0]

    def forget(self, row: int) -> None:
        """A job is gone."""
        super().forget(row)
        self._deployment.forget(row)
        self._told.pop(row, None)

    def _at_epochs(self, training: Training, rows: Ints) -> np.ndarray:
        """Rows x (epochs finished, samples, loss, accuracy), as told when the last epoch ended."""
        told = np.stack([training.samples[rows], training.loss[rows], training.accuracy[rows]], axis=1)
        whole = np.floor(training.epochs[rows] + 1e-9)
        for k, row in enumerate(rows.tolist()):
            last = self._told.get(row)
            if last is None or last[0] != whole[k]:
                self._told[row] = np.append(whole[k], told[k])
        return np.stack([self._told[row] for row in rows.tolist()])
