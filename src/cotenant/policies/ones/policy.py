"""ONES: evolve whole schedules of who has how many GPUs, deploy the one with the least predicted GPU time left.

Differences from the artifact, on purpose: changes are charged in the score and in the run; whoever has not finished
an epoch since its last change keeps its GPUs while the others change (the artifact lets everybody wait for everybody);
time is the driver's, so the same seed gives the same run. Jobs that cannot change their size run as they asked, in
order of submission, before the others.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.plan import Plan
from cotenant.core.spec import Value
from cotenant.core.training import Training
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import Room
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.ones.evolution import (
    EMPTY,
    Limits,
    counts_of,
    first_population,
    generation,
    order_by_gain,
    order_by_time,
    refresh,
)
from cotenant.policies.ones.predictor import ProgressModel, features
from cotenant.policies.ones.reorder import place_rigid, place_sizes
from cotenant.policies.ones.saying import sizes_said
from cotenant.policies.ones.scaling import TIMES_ASKED, Sizes, at_least
from cotenant.policies.ones.throughput import Goodputs, sruf, throughputs

_KEPT_S = 60.0  # how long a schedule is taken to last when changes are charged
_EVOLVED = "in the best schedule found, by the work that jobs are predicted to have left, others have the rest"
_YOUNG = 2.0  # epochs before a job is predicted, scaled or may be stopped


class Ones(PlanPolicy):
    """Elastic sizes and batches by evolution of schedules; least predicted remaining GPU time wins."""

    name = "ones"
    source = "Bian et al., SC'21"
    resizes = True
    defaults: ClassVar[dict[str, Value]] = {
        "population": 16,
        "interval": 5.0,  # seconds between generations (the artifact: 1)
        "crossover": 0.5,
        "mutation": 0.3,
        "progress": "mean",  # or sample (the artifact's): how progress is read off its distribution
        "generations": 1,  # per decision
        "score": "rate",  # or sruf (the artifact's): what schedules are judged by
    }

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        for name, known in (("progress", ("sample", "mean")), ("score", ("rate", "sruf"))):
            if self.params[name] not in known:
                raise InputError(f"policy 'ones': {name}={self.params[name]}: write {' or '.join(known)}")
        for name in ("population", "interval", "generations"):
            if not self.number(name) > 0:
                raise InputError(f"policy 'ones': {name}={self.params[name]} must be above 0")

    def begin(self, context: Context) -> None:
        """Nothing has been learned, and the first population is yet to come."""
        self.rng = np.random.default_rng([context.seed, 41])
        self.progress = ProgressModel(context.seed)
        self.sizes = Sizes()
        self._goodputs: Goodputs | None = None
        self._genomes: Ints | None = None
        self._jobs: list[int] = []  # row of each number in the genomes
        self._looks: dict[int, list[tuple[Floats, float]]] = {}
        self._samples: dict[int, float] = {}  # when last looked at, by row

    def decide(self, view: View) -> Plan:
        """Rigid jobs as they are; sizes of the elastic ones by evolution."""
        board = Room(view)
        elastic, training = view.facts.elastic, view.facts.training
        mine = np.zeros(len(view.rows), bool) if elastic is None or training is None else elastic[view.rows]
        run = place_rigid(board, np.flatnonzero(~mine))
        which = np.flatnonzero(mine)
        later_s = view.now_s + self.number("interval")
        if not len(which) or training is None:
            next_s = np.inf if training is None else later_s
            return Plan(run, next_s=next_s, why=sizes_said(view, {}, next_s, _EVOLVED))
        which = which[np.lexsort((view.rows[which], view.submit_s[which]))]
        now = {int(view.rows[at]): view.placement(int(view.rows[at])) for at in which[view.running[which]].tolist()}
        wanted = self._evolve(view, training, which, board.left)
        places = place_sizes(board, wanted, now)
        pause = {
            row: training.resize_s
            for row, place in places.items()
            if row in now and sum(g for _, g in place) <= sum(g for _, g in now[row])
        }
        run.update(places)
        why = sizes_said(view, run, later_s, _EVOLVED)
        return Plan(run, next_s=later_s, pause_s=pause, why=why)

    # -- sizes -------------------------------------------------------------------------------------------------

    def _evolve(self, view: View, training: Training, which: Ints, gpus: int) -> list[tuple[int, int]]:
        """Rows and their new sizes."""
        rows = view.rows[which]
        held = np.where(view.running[which], view.gpus[which], 0)
        epochs, ids = training.epochs[rows], rows.tolist()
        x = features(
            training.epoch_size[rows], training.first_loss[rows], epochs, training.loss[rows], training.accuracy[rows]
        )
        self._learn(training, ids, x)
        if gpus <= 0:  # jobs that cannot change their size have everything
            return []
        young = epochs < _YOUNG
        cap, train = self.sizes.limits(view, which, held, epochs, gpus)
        fewest, most = view.size_limits(rows)
        cap, train = np.minimum(cap, most), np.minimum(train, most)
        rho = np.clip(self.progress.draw(x, self.params["progress"] == "sample"), 1e-12, 1.0)
        told = training.left(rows)
        left = np.where(np.isnan(told), training.samples[rows] * (1.0 / rho - 1.0), told)
        left = np.where(young, 0.0, left)
        limits, cost = self._judge(view, training, which, held, young, left, cap, train, gpus)
        genomes = self._population(ids, gpus, cap)
        for _ in range(int(self.number("generations"))):
            genomes = generation(
                genomes, limits, cost, self.rng, cross=self.number("crossover"), mutation=self.number("mutation")
            )
        self._genomes, self._jobs = genomes, ids
        target = counts_of(genomes[:1], len(rows))[0]
        final = self.sizes.apply(ids, held, target, epochs, gpus)
        at_least(final, fewest, held, gpus)
        return [(int(row), int(size)) for row, size in zip(rows, final, strict=True) if size > 0]

    def _judge(
        self, view: View, training: Training, which: Ints, held: Ints, young: np.ndarray, left: Floats,
        cap: Ints, train: Ints, gpus: int,
    ) -> tuple[Limits, np.ndarray]:  # fmt: skip
        """What each size of each job is worth, and in which order empty GPUs are filled."""
        rows = view.rows[which]
        if self.params["score"] == "sruf":
            rate = np.stack([throughputs(training.seen[row], gpus) for row in rows.tolist()])
            cost = sruf(rate, left)
            alone_s = np.where(rate[:, 1] > 0, left / np.where(rate[:, 1] > 0, rate[:, 1], 1.0), 0.0)
            cost[young] = 0.0
            charge_gpu_s(cost, held, training.resize_s, view.restore_s[which])
            return Limits(cap, train, young, *order_by_time(alone_s, young, cap, train)), cost
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
        cap = np.minimum(cap, view.size_limits(rows)[1])
        order = order_by_gain(np.diff(pace[:, : gpus + 1], axis=1), young, cap)
        cost = pace_cost(pace, held, training.resize_s, view.restore_s[which])
        return Limits(cap, cap, young, *order), np.ascontiguousarray(cost[:, : gpus + 1])

    def _population(self, ids: list[int], gpus: int, cap: Ints) -> Ints:
        """The last population, carried over to the jobs and GPUs of now."""
        size = int(self.number("population"))
        if self._genomes is None:
            return first_population(size, gpus, len(ids), self.rng)
        place = {row: at for at, row in enumerate(ids)}
        renumber = np.array([place.get(row, EMPTY) for row in self._jobs], np.int64)
        genomes = self._genomes[:, :gpus]
        if genomes.shape[1] < gpus:
            more = np.full((len(genomes), gpus - genomes.shape[1]), EMPTY, np.int64)
            genomes = np.concatenate([genomes, more], axis=1)
        return refresh(genomes, renumber, cap)

    def _learn(self, training: Training, rows: list[int], x: Floats) -> None:
        """Remember what jobs look like; when one is gone, learn from its whole course."""
        for row in self._looks.keys() - set(rows):
            looks = self._looks.pop(row)
            total = self._samples.pop(row)
            course = [(seen, samples / total) for seen, samples in looks if 0 < samples < total]
            if course:
                self.progress.finish(np.stack([seen for seen, _ in course]), np.array([share for _, share in course]))
            self.sizes.forget(row)
        for k, row in enumerate(rows):
            looks, samples = self._looks.setdefault(row, []), float(training.samples[row])
            self._samples[row] = samples
            if samples > 0 and (not looks or samples > looks[-1][1] + 0.5 * training.epoch_size[row]):
                looks.append((x[k], samples))


def charge_gpu_s(cost: np.ndarray, held: Ints, resize_s: float, restore_s: Floats) -> None:
    """GPU-seconds that leaving the present size costs, added to the score."""
    sizes = np.arange(cost.shape[1])[None, :]
    changed = (held[:, None] > 0) & (sizes != held[:, None]) & (sizes > 0)
    cost += np.where(changed, resize_s * sizes, 0.0)
    cost[:, 0] += np.where(held > 0, restore_s * held, 0.0)


def pace_cost(pace: np.ndarray, held: Ints, resize_s: float, restore_s: Floats) -> np.ndarray:
    """Minus the completions per second, as if a schedule were kept for a while: a change pauses, a stop restores."""
    sizes = np.arange(pace.shape[1])[None, :]
    changed = (held[:, None] > 0) & (sizes != held[:, None])
    cost = -np.where(changed, pace * max(1.0 - resize_s / _KEPT_S, 0.0), pace)
    now = pace[np.arange(len(held)), held]
    cost[:, 0] = np.where(held > 0, now * restore_s / _KEPT_S, 0.0)
    return np.asarray(cost)
