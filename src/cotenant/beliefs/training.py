"""What live elastic jobs tell of their training, as the columns that elastic policies decide on.

Throughput by number of GPUs is what their steps took there, whenever that was, or those of other jobs of the kind. The
samples of a step are the metric `batch` if a job reports it, else the batch that it was submitted with. A job that lets
its batch grow (`batch: {max}`) keeps the samples per GPU, every other one the samples per step. An epoch is the metric
`epoch_samples` or, where a job says how many steps it makes, a twentieth of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cotenant.beliefs.gradient_noise import UNKNOWN
from cotenant.beliefs.watched import Told, Watched
from cotenant.core.training import Training

EPOCHS = 20  # that a job of known length is taken to have
_MOST_SEEN = 1024


@dataclass(slots=True)
class _Course:
    """What one job has shown so far: samples per second by number of GPUs, its first loss, and its last word.

    Between two attempts nobody tells anything: what was told last holds.
    """

    rates: dict[int, float] = field(default_factory=dict)
    first_loss: float = math.nan
    last: Told | None = None


class Trainings:
    """The courses of elastic jobs. In memory only: they are told again."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._numbers: dict[tuple[str, str], int] = {}  # of kinds, for good: policies remember them
        self._of_kind: dict[tuple[str, str], dict[int, float]] = {}  # rates, as any job of the kind has shown

    def look(self, job: Watched, report: Told | None) -> None:
        """Take in the newest word of a running elastic job."""
        if report is None or not report.step_time_s:
            return
        course = self._courses.setdefault(job.id, _Course())
        course.last = report
        gpus = job.size
        course.rates[gpus] = _batch(job, report, gpus) / report.step_time_s
        self._of_kind.setdefault(_kind(job), {})[gpus] = course.rates[gpus]
        if math.isnan(course.first_loss):
            course.first_loss = report.metrics.get("loss", math.nan)

    def forget(self, job: str) -> None:
        """A job is retired."""
        self._courses.pop(job, None)

    def table(
        self, ids: Sequence[str], jobs: Mapping[str, Watched], reports: Mapping[str, Told], gpus: int, resize_s: float
    ) -> Training:
        """Columns over `ids`; whoever is not in `jobs` is not elastic."""
        rows, most = len(ids), min(gpus, _MOST_SEEN)
        ones = np.ones(rows)
        found = Training(
            np.zeros(rows, np.int64), np.ones(rows, np.int64), ones.copy(), ones.copy(), ones.copy(), ones.copy(),
            np.zeros(rows), ones.copy(), ones.copy(), np.zeros(rows), np.full(rows, UNKNOWN),
            np.full((rows, most + 1), np.nan), resize_s, resize_s, np.full(rows, np.nan),
        )  # fmt: skip
        for row, name in enumerate(ids):
            job = jobs.get(name)
            if job is not None:
                found.kind[row] = self._numbers.setdefault(_kind(job), 1 + len(self._numbers))
                self._enter(found, row, job, reports.get(name), most)
        return found

    def _enter(self, found: Training, row: int, job: Watched, report: Told | None, most: int) -> None:
        course = self._courses.get(job.id, _Course())
        report = report if report is not None and report.step is not None else course.last
        grows = job.spec.batch_max > 0
        size = job.size if job.attempts else job.spec.gpus
        whole = _batch(job, report, size)
        found.asked[row] = job.spec.gpus
        found.batch[row] = whole / size if grows else whole
        found.max_lr[row] = max(job.spec.max_gpus, 1) if grows else 1.0
        for gpus, rate in (self._of_kind.get(_kind(job), {}) | course.rates).items():
            if gpus <= most:
                found.seen[row, gpus] = rate
        found.epoch_size[row] = math.inf  # of which nothing is known is young for ever: nobody resizes it
        if report is None or report.step is None:
            return
        metrics = {name: value for name, value in report.metrics.items() if math.isfinite(value)}
        found.samples[row] = report.step * whole
        if report.total and found.total is not None:
            found.total[row] = report.total * whole
            found.epoch_size[row] = max(found.total[row] / EPOCHS, 1.0)
        found.epoch_size[row] = metrics.get("epoch_samples", found.epoch_size[row])
        loss = metrics.get("loss", math.nan)
        if math.isfinite(loss):
            found.loss[row] = loss
            found.first_loss[row] = course.first_loss if math.isfinite(course.first_loss) else loss
        found.accuracy[row] = metrics.get("accuracy", 0.0)
        if grows:
            found.noise[row] = metrics.get("gradient_noise", found.noise[row])


def _batch(job: Watched, report: Told | None, gpus: int) -> float:
    """Samples of one step of the whole gang; steps are counted instead where nobody says."""
    told = report.metrics.get("batch", 0.0) if report is not None else 0.0
    if 0 < told < math.inf:
        return told
    per_gpu = float(job.spec.batch_size)
    return per_gpu * (gpus if job.spec.batch_max > 0 else job.spec.gpus) if per_gpu else 1.0


def _kind(job: Watched) -> tuple[str, str]:
    """Jobs of one model, or of one name of one tenant, train alike."""
    return (job.spec.model, "") if job.spec.model else (job.spec.name, job.tenant)
