"""Streams of transitions of random workloads, as digests: `python stream_digests.py plain|compiled SEEDS`."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, Workload
from cotenant.engine.tables import StopCosts
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import random_workload

POLICIES = (
    "fifo", "backfill", "easy", "sjf", "srtf", "srtf:weigh=false", "srsf", "las:round=60",
    "tiresias-l:threshold=400,knob=4", "tiresias-g:thresholds=[400]",
)  # fmt: skip
COSTS = {
    "today": StopCosts(),
    "leaving takes time": StopCosts(save_s=7.0, start_s=3.0),
    "suspended": StopCosts(save_s=7.0, start_s=3.0, resume_s=2.0, suspends=True, most_suspended=3, patience_s=40.0),
}


TREE = Tree(
    (
        Tenant("lab", weight=2.0), Tenant("ada", "lab", guaranteed=2), Tenant("bob", "lab", ceiling=6),
        Tenant("eve", guaranteed=3, preempts=False, lend=2),
    ),
    half_life_s=500.0,
    min_run_s=30.0,
    reserve_after_s=200.0,
)  # fmt: skip


def _shared(work: Workload, seed: int) -> Workload:
    """The same jobs, faster one after the other, of three tenants of the tree and a stranger."""
    tenant = Codes(np.random.default_rng(seed).integers(0, 4, len(work)), ("ada", "bob", "eve", "stranger"))
    return replace(work, tenant=tenant, submit_s=work.submit_s / 4)


def streams(compiled: bool, seeds: int) -> dict[str, str]:
    """Policy, costs and seed -> digest of every transition with its time and exact GPUs, and how many there were."""
    plain = Cluster.parse("2x4")
    kinds = {name: (costs, plain) for name, costs in COSTS.items()}
    kinds |= {f"{name}, tenants": (costs, replace(plain, tenants=TREE)) for name, costs in COSTS.items()}
    found = {}
    for policy in POLICIES:
        for name, (costs, cluster) in kinds.items():
            for seed in range(seeds):
                work = random_workload(seed, 25, 6)
                experiment = Experiment(
                    work if cluster is plain else _shared(work, seed), cluster, policy, costs="20", stop_costs=costs,
                    transitions=True, compiled=compiled, seed=seed, skip_infeasible=True,
                )  # fmt: skip
                run = Simulation(experiment)
                run.advance(np.inf)
                text = repr(
                    [
                        (at, item.change, item.row, item.places, item.moved, item.gain_s, item.cost_s)
                        for at, item in run.transitions
                    ]
                )
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                found[f"{policy}, {name}, {seed}"] = f"{len(run.transitions)} {digest}"
    return found


if __name__ == "__main__":
    json.dump(streams(sys.argv[1] == "compiled", int(sys.argv[2])), sys.stdout)
