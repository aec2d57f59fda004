"""What the simulator and the live service are compared on: a workload for every shipped policy, and two cost tables.

Jobs of one workload have tiers, deadlines, models, sizes that may change and attempts that fail; arrivals come in whole
seconds, some of them together. Nodes fail now and then. Every policy makes of it what it can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.policies.registry import BUILT_IN
from cotenant.sim.experiment import Experiment

COSTS = {
    "today": StopCosts(),
    "lagging": StopCosts(save_s=7.0, start_s=5.0, resume_s=3.0, suspends=True, most_suspended=2, patience_s=60.0),
}
H200 = ("resnet50", "resnet18_cifar", "vit_b_16", "gpt2", "bert", "lstm", "recsys", "mlp_rl")
ELASTIC = ("alexnet/imagenet", "resnet50/imagenet", "googlenet/cifar", "resnet18/cifar", "bert/cola", "bert/sst2")
FAILING = "mtbf=9000,mttr=300,checkpoint=120"
TWO_TYPES = "2x4:v100+2x4:p100"


@dataclass(frozen=True, slots=True)
class Row:
    """A policy on a cluster."""

    policy: str
    cluster: str = "4x4"
    models: tuple[str, ...] = H200
    profile: str = "none"
    elastic: bool = False
    jobs: int = 60
    defrag: bool = False

    def experiment(self, costs: str, jobs: int = 0, seed: int = 0) -> Experiment:
        """With one of the cost tables; another number of jobs if given."""
        work = generated(jobs or self.jobs, seed, self.models, self.elastic)
        return Experiment(
            work, Cluster.parse(self.cluster), self.policy, profile=self.profile, round_s=120.0, seed=seed,
            fail_nodes=FAILING, stop_costs=COSTS[costs], compiled=False, defrag=self.defrag,
        )  # fmt: skip


def rows() -> Iterator[Row]:
    """Every shipped policy, and variants that decide in other ways."""
    shared = {"cluster": "2x4:h200", "profile": "h200"}
    sized = {"models": ELASTIC, "elastic": True}
    for policy in (*BUILT_IN, *_VARIANTS):
        name = policy.split(":")[0]
        if name in ("ones", "ones-goodput", "optimus"):
            yield Row(policy, jobs=60 if name == "optimus" else 24, **sized)  # type: ignore[arg-type]
        elif name in _SHARING or "sharing=true" in policy:
            yield Row(policy, **shared)  # type: ignore[arg-type]
        else:
            yield Row(policy)
    yield Row("gandiva", **sized)  # type: ignore[arg-type]
    for policy in ("fifo:strict=false", "srtf", "philly"):
        yield Row(policy, defrag=True)


_SHARING = (
    "muri-s", "muri-l", "sjf-bsbf", "sjf-bsbf-paper", "sjf-ffs", "antman", "gandiva", "horus", "horus+",
    "gandiva-packing",
)  # fmt: skip
_VARIANTS = (
    "fifo:strict=false", "las:round=240", "tiresias-l:threshold=600,knob=4", "tiresias-l:thresholds=[300,3000],knob=8",
    "tiresias-g:thresholds=[600],quantum=fixed", "gavel:objective=ftf", "gavel:sharing=true",
    "gavel:sharing=true,pairs=online", "chronus:lease=600", "sjf-bsbf:preemptive=true",
    "philly:timeout=40,backoff=20,rack_nodes=2", "philly:wait=reserve",
)  # fmt: skip


def generated(jobs: int, seed: int, models: tuple[str, ...], elastic: bool) -> Workload:
    """Jobs of half a minute to half an hour, more of them than a small cluster can do at a time."""
    draw = np.random.default_rng([seed, 1013])
    gaps_s = np.where(draw.random(jobs) < 0.2, 0, draw.integers(0, 120, jobs))
    submit_s = (np.cumsum(gaps_s) - gaps_s[0]).astype(np.float64)
    gpus = draw.choice([1, 1, 1, 2, 2, 4, 4, 8], jobs)
    duration_s = np.floor(30 * 60 ** draw.random(jobs))
    late, kind = draw.random(jobs), draw.random(jobs)
    deadline_s = np.where(kind < 0.5, submit_s + np.floor(duration_s * (1.3 + 4 * late)), np.nan)
    parts = draw.random((jobs, 2))
    attempts = {
        row: tuple(np.maximum(np.floor(duration_s[row] * parts[row] / 3), 1.0).tolist())
        for row in np.flatnonzero(draw.random(jobs) < 0.25).tolist()
    }
    extra = {"min_gpus": np.maximum(gpus // 2, 1), "max_gpus": 2 * gpus} if elastic else {}
    return make_workload(
        f"generated, seed {seed}", submit_s, gpus, duration_s, deadline_s=deadline_s, attempts=attempts,
        model=Codes(draw.integers(0, len(models), jobs), models), priority=(draw.random(jobs) < 0.15).astype(np.int64),
        extra=extra,
    )  # fmt: skip
