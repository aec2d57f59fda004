"""Jobs that may change their number of GPUs and their batch: what is true of them, by model.

A job is elastic if its log says so, by the fewest or the most GPUs that it takes (`min_gpus`, `max_gpus` of
`Workload.extra`, 0 where nothing is said), and the table has its model.

The table has the ten model and data set pairs of ONES' trace (SC'21). Batch sizes are within its range; times, noise
and sizes are plausible for a V100 of that time, not measured: they set the shape of the trade-off, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cotenant.core.goodput import StepTime, goodput, linear_batch
from cotenant.core.state import IntMatrix
from cotenant.core.workload import Floats, Ints, Workload


@dataclass(frozen=True, slots=True)
class ElasticModel:
    """One model on one data set: steps, samples per epoch, base batch per GPU and learning rates, gradient noise."""

    name: str
    epoch_size: int
    batch: int
    base_lr: float
    max_lr: float
    noise: float  # samples
    first_loss: float
    step: StepTime


def _model(
    name: str, epoch: int, batch: int, growth: int, noise: float, loss: float, grad_ms: float, sync_ms: float
) -> ElasticModel:
    """`growth`: how often the learning rate may double its base; times for the base batch on one GPU, milliseconds."""
    step = StepTime(
        a_c=0.2 * grad_ms / 1e3, b_c=0.8 * grad_ms / 1e3 / batch, a_r=0.3 * sync_ms / 1e3, b_r=0.01 * sync_ms / 1e3,
        a_n=sync_ms / 1e3, b_n=0.02 * sync_ms / 1e3, gamma=1.6,
    )  # fmt: skip
    return ElasticModel(name, epoch, batch, 0.0005, 0.0005 * growth, noise * batch, loss, step)


MODELS: tuple[ElasticModel, ...] = (
    _model("alexnet/imagenet", 20_000, 256, 8, 16, 6.9, 90, 75),
    _model("resnet50/imagenet", 3_000, 64, 32, 40, 6.9, 210, 60),
    _model("inception_v3/imagenet", 2_500, 32, 32, 40, 6.9, 140, 55),
    _model("vgg16/imagenet", 2_000, 32, 16, 24, 6.9, 160, 160),
    _model("googlenet/cifar", 20_000, 128, 16, 12, 2.3, 70, 20),
    _model("resnet18/cifar", 20_000, 128, 16, 12, 2.3, 45, 22),
    _model("vgg16/cifar", 20_000, 128, 16, 10, 2.3, 40, 50),
    _model("bert/cola", 2_000, 16, 16, 16, 0.7, 95, 90),
    _model("bert/mrpc", 1_800, 16, 8, 12, 0.7, 95, 90),
    _model("bert/sst2", 2_000, 32, 16, 20, 0.7, 180, 90),
)


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job of ONES' trace as its artifact recorded it: the GPUs asked, and samples until it had converged on them."""

    model: ElasticModel
    asked: int
    samples: float


def _recorded(
    name: str, batch: int, growth: int, asked: int, rate: float, million: float, *lengths: tuple[int, float]
) -> list[RecordedJob]:
    """`rate`: samples per second on the GPUs asked; `million` parameters; per length samples per epoch and epochs.

    Only the step on the GPUs asked was recorded. Its part of communication is that of a ring over links of 8 GB/s (the
    recorded 2, 3 and 4 GPUs of googlenet and the steps of vgg16 on CIFAR bound it to 4 to 9), the rest is computing.
    """
    ring_s = million * 4e6 / 8e9
    across, within, gamma = 1.75 * ring_s, 1.25 * ring_s, 1.6
    sync = across if asked > 4 else within
    grad = ((batch * asked / rate) ** gamma - sync**gamma) ** (1 / gamma)
    step = StepTime(0.2 * grad, 0.8 * grad / batch, within, 0.0, across, 0.0, gamma)
    found = []
    for epoch, epochs in lengths:
        known = ElasticModel(f"{name}/{epoch}", epoch, batch, 0.0005, 0.0005 * growth, 2.0 * growth * batch, 6.9, step)
        found.append(RecordedJob(known, asked, epoch * epochs))
    return found


RECORDED: tuple[RecordedJob, ...] = tuple(
    job
    for jobs in (
        _recorded("alexnet/imagenet", 64, 16, 16, 3_430, 61, (20_000, 69), (10_000, 21)),
        _recorded("resnet50/imagenet", 32, 16, 16, 1_975, 26, (20_000, 44), (10_000, 27)),
        _recorded("inception_v3/imagenet", 32, 16, 16, 1_610, 24, (20_000, 52), (10_000, 50)),
        _recorded("vgg16/imagenet", 32, 16, 16, 1_140, 138, (20_000, 58), (10_000, 11)),
        _recorded("googlenet/cifar", 256, 16, 4, 11_200, 6.6, (40_000, 23), (20_000, 36)),
        _recorded("resnet18/cifar", 256, 16, 4, 16_100, 11, (40_000, 25), (20_000, 38)),
        _recorded("vgg16/cifar", 128, 16, 4, 2_820, 134, (40_000, 36), (20_000, 67)),
        _recorded("bert/cola", 16, 4, 2, 102, 110, (8_000, 6), (5_000, 5)),
        _recorded("bert/mrpc", 16, 4, 2, 102, 110, (3_600, 6), (3_600, 5)),
        _recorded("bert/sst2", 32, 8, 8, 435, 110, (20_000, 5), (10_000, 5)),
    )
    for job in jobs
)
"""Two lengths of each pair. Rates, epochs, batches and GPUs are summaries of the artifact's trace and job history; how
much larger batches help less (gradient noise: twice the largest batch that the trace allows) is our guess."""
BY_NAME = {model.name: model for model in (*MODELS, *(job.model for job in RECORDED))}
LIMITS = ("min_gpus", "max_gpus")


class ElasticJobs:
    """What is true of the elastic jobs of a workload: speeds relative to the GPUs that each one asked for."""

    def __init__(self, work: Workload, node_gpus: int, most: int) -> None:
        self.node_gpus, self.most = max(node_gpus, 1), most
        names = [BY_NAME.get(name) for name in work.model.names]
        known = np.array([model is not None for model in names])[work.model.code]
        least, largest = (np.asarray(work.extra.get(name, np.zeros(len(work))), np.int64) for name in LIMITS)
        self.elastic = known & ((least > 0) | (largest > 0))
        sizes = np.stack([np.maximum(least, 1), np.where(largest > 0, np.minimum(largest, most), most)], axis=1)
        self.sizes: IntMatrix = np.where(self.elastic[:, None], sizes, 0)  # row x (fewest, most); 0 for rigid jobs
        self.model = [names[code] for code in work.model.code.tolist()]
        self.kind = work.model.code
        self.asked = work.gpus
        self.duration_s = work.duration_s

    def any(self) -> bool:
        """Whether there is any."""
        return bool(self.elastic.any())

    @cached_property
    def epoch_size(self) -> Floats:
        """Samples per epoch of each job."""
        return np.array([1.0 if model is None else float(model.epoch_size) for model in self.model])

    def local_batch(self, row: int, gpus: int, fixed: bool) -> int:
        """Samples per GPU: by the rule of ONES, or the batch that the job asked for in equal parts."""
        model = self.model[row]
        assert model is not None
        if not fixed:
            return linear_batch(model.batch, model.base_lr, model.max_lr, gpus)[0]
        asked = int(self.asked[row])
        whole = asked * linear_batch(model.batch, model.base_lr, model.max_lr, asked)[0]
        return max(whole // gpus, 1)

    def table(self, row: int, fixed: bool) -> tuple[Floats, Floats, Floats]:
        """By GPUs (0 to most): samples per second together, goodput together, goodput over one node more."""
        model = self.model[row]
        assert model is not None
        key = (model.name, int(self.asked[row]) if fixed else 0, fixed)
        if key not in self._tables:
            gpus = np.arange(1, self.most + 1)
            local = np.array([self.local_batch(row, int(n), fixed) for n in gpus])
            nodes = -(-gpus // self.node_gpus)
            rate = model.step.throughput(local, gpus, nodes)
            good = goodput(model.step, model.noise, model.batch, local, gpus, nodes)
            apart = goodput(model.step, model.noise, model.batch, local, gpus, np.maximum(nodes, 2))
            self._tables[key] = tuple(np.concatenate([[0.0], part]) for part in (rate, good, apart))  # type: ignore[assignment]
        return self._tables[key]

    @cached_property
    def _tables(self) -> dict[tuple[str, int, bool], tuple[Floats, Floats, Floats]]:
        return {}

    def own_goodput(self, row: int) -> float:
        """Goodput on the GPUs and with the batch that a job asked for: the speed that its duration refers to."""
        return float(self.table(row, False)[1][int(self.asked[row])])


def speeds(jobs: ElasticJobs, rows: Ints, gpus: Ints, nodes: Ints, fixed: bool) -> Floats:
    """Seconds of work per second on so many GPUs of so many nodes."""
    out = np.ones(len(rows))
    for k, (row, count, used) in enumerate(zip(rows.tolist(), gpus.tolist(), nodes.tolist(), strict=True)):
        if jobs.elastic[row]:
            _, together, apart = jobs.table(row, fixed)
            good = apart[count] if used > -(-count // jobs.node_gpus) else together[count]
            out[k] = good / jobs.own_goodput(row)
    return out
