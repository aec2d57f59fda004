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
BY_NAME = {model.name: model for model in MODELS}
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
