"""Elastic jobs in virtual time: what they really do on their GPUs, and what they tell of it.

A job that grows goes on with its old workers while the new ones load, then pauses for the change and goes on at its
new speed. Where GPUs are shared, that is its speed alone; company and turns slow it as they slow everybody. The truth
is the goodput model of `cotenant.workload.elastic`; what is told of it is what a job can measure, with errors: samples
done, throughput per number of GPUs, loss, accuracy and norms of gradients. How far it has come, when its loss will stop
falling (which no two jobs do alike) and the gradient noise have to be guessed from these.
"""

from __future__ import annotations

import numpy as np

from cotenant.beliefs.company import SharedSpeeds
from cotenant.beliefs.gradient_noise import UNKNOWN, NoiseBelief
from cotenant.core import columns as col
from cotenant.core.goodput import efficiency
from cotenant.core.state import Rule, State
from cotenant.core.training import Training
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import places_of, running_rows, walk_slices
from cotenant.engine.rates import rerate
from cotenant.engine.resizing import go_on, lay_slices, let_go
from cotenant.workload.elastic import ElasticJobs, speeds

_FLOOR = (0.05, 0.2)  # share of the first loss that never goes
_DECAY, _DECAY_SPREAD = 3.0, 0.4
_LOSS_ERROR, _RATE_ERROR = 0.02, 0.01  # relative, from epoch to epoch
_NORM_ERROR = 0.1  # of the squared norm of one gradient


class ElasticTruth:
    """Rates of running jobs by their present GPUs, and the columns of `Training`, after every decision."""

    def __init__(
        self, jobs: ElasticJobs, fixed_batch: bool, resize_s: float, load_s: float, seed: int,
        company: SharedSpeeds | None = None,
    ) -> None:  # fmt: skip
        self.jobs, self.fixed, self.company = jobs, fixed_batch, company
        rows = len(jobs.asked)
        draw = np.random.default_rng([seed, 31])
        self._decay = _DECAY * np.exp(_DECAY_SPREAD * draw.standard_normal(rows))
        self._floor = draw.uniform(*_FLOOR, rows)
        self._seed, self._epoch, self._errors = seed, np.zeros(rows, np.int64), np.zeros((rows, 2))
        self._noise = NoiseBelief()
        self._done = np.zeros(rows)  # work done when last looked at
        self._gpus = np.zeros(rows, np.int64)  # size whose speed holds
        self._ready_s = np.full(rows, np.nan)  # when a growing job can change over
        self._old = np.ones(rows)  # its speed until then

        def of(name: str) -> Floats:
            return np.array([1.0 if model is None else float(getattr(model, name)) for model in jobs.model])

        loss = of("first_loss")
        self.training = Training(
            jobs.kind, jobs.asked, jobs.epoch_size, of("batch"), of("base_lr"), of("max_lr"), np.zeros(rows), loss,
            loss.copy(), np.zeros(rows), np.full(rows, UNKNOWN), np.full((rows, jobs.most + 1), np.nan), resize_s,
            load_s,
        )  # fmt: skip

    def tell(self, state: State, now_s: float) -> None:
        """Bring `training` up to now; called before a decision."""
        rows = running_rows(state)
        rows = rows[self.jobs.elastic[rows]]
        since = np.maximum(state.f[rows, col.WARM], state.f[rows, col.RATED])
        done = state.f[rows, col.DONE] + np.maximum(now_s - since, 0.0) * state.f[rows, col.SPEED]
        done = np.minimum(done, state.f[rows, col.WORK])
        told = self.training
        for row, new in zip(rows.tolist(), (done - self._done[rows]).tolist(), strict=True):
            gpus = int(self._gpus[row])
            model = self.jobs.model[row]
            if new <= 0 or gpus == 0 or model is None:
                continue
            local = self.jobs.local_batch(row, gpus, self.fixed)
            worth = float(efficiency(model.noise, model.batch, local * gpus))
            each = self.jobs.own_goodput(row) / worth  # samples per second of work
            told.samples[row] += new * each
            self._epochs_end(row, gpus, local)
            if self.company is None or state.f[row, col.SPEED] >= state.f[row, col.ALONE] * (1 - 1e-9):
                rate = float(state.f[row, col.ALONE]) * each  # in company it would say nothing
                told.seen[row, gpus] = rate * (1.0 + _RATE_ERROR * self._errors[row, 0])
        self._done[rows] = done
        share = np.divide(done, state.f[rows, col.WORK], out=np.ones(len(rows)), where=state.f[rows, col.WORK] > 0)
        decay = self._decay[rows]
        fall = (np.exp(-decay * share) - np.exp(-decay)) / (1 - np.exp(-decay))
        fall = fall * (1.0 + _LOSS_ERROR * self._errors[rows, 1])
        floor = self._floor[rows]
        told.loss[rows] = told.first_loss[rows] * np.clip(floor + (1 - floor) * fall, floor, 1.0)
        told.accuracy[rows] = np.clip((1.0 - fall) * (1.0 - floor), 0.0, 1.0)

    def _epochs_end(self, row: int, gpus: int, local: int) -> None:
        """What a job measures over each epoch that it has finished; the errors depend on job and epoch alone."""
        told, model = self.training, self.jobs.model[row]
        assert model is not None
        for epoch in range(int(self._epoch[row]) + 1, int(told.samples[row] / told.epoch_size[row]) + 1):
            draw = np.random.default_rng([self._seed, 37, row, epoch]).standard_normal(4)
            self._epoch[row], self._errors[row] = epoch, draw[:2]
            if gpus > 1:
                steps = max(float(told.epoch_size[row]) / (local * gpus), 1.0)
                error = 1.0 + _NORM_ERROR * draw[2:] / np.sqrt(steps)
                norms = (1.0 + model.noise / np.array([local, local * gpus])) * error
                kind = int(told.kind[row])
                self._noise.take(kind, local, float(norms[0]), local * gpus, float(norms[1]), steps)
                told.noise[told.kind == kind] = self._noise.of(kind)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Speeds after a decision; asks to be called again when new workers become ready."""
        rows = running_rows(state)
        rows = rows[self.jobs.elastic[rows]]
        if len(rows):
            self._resized(state, rule, rows, now_s)
        if self.company is not None:
            self.company.update(state, rule, now_s)

    def _resized(self, state: State, rule: Rule, rows: Ints, now_s: float) -> None:
        """Speeds by present size, old ones while new workers load."""
        gpus, nodes = state.i[rows, col.GPUS], _nodes(state, rows)
        fast = speeds(self.jobs, rows, gpus, nodes, self.fixed)
        began = state.f[rows, col.SINCE] >= now_s  # started or resized just now
        grown = (
            began
            & (self._gpus[rows] > 0)
            & (gpus > self._gpus[rows])
            & (self._done[rows] > 0)
            & (state.i[rows, col.OWES] == 0)
        )
        load_s = self.training.load_s
        self._ready_s[rows[grown]] = now_s + load_s if load_s > 0 else np.nan
        self._ready_s[rows[began & ~grown]] = np.nan
        ready = self._ready_s[rows]
        loading = ~np.isnan(ready) & (ready > now_s + 1e-9)
        over = ~np.isnan(ready) & ~loading
        for row in rows[over].tolist():  # the new workers join: everybody pauses
            place = tuple(walk_slices(state, int(state.i[row, col.SLICE])))
            let_go(state, rule, row, int(state.i[row, col.GPUS]), now_s)
            go_on(state, rule, row, lay_slices(state, place), self.training.resize_s, now_s)
        self._ready_s[rows[over]] = np.nan
        speed = np.where(loading, self._old[rows], fast)
        if self.company is None:
            rerate(state, rule, rows, speed, now_s)
        state.f[rows, col.ALONE] = speed
        self._old[rows[~loading]] = fast[~loading]
        self._gpus[rows[~loading]] = gpus[~loading]
        if loading.any():
            state.t[col.NEXT_CALL] = min(float(state.t[col.NEXT_CALL]), float(ready[loading].min()))


def _nodes(state: State, rows: Ints) -> Ints:
    """Nodes that each running job sits on."""
    return np.array([len(places_of(state, row)) for row in rows.tolist()], np.int64)
