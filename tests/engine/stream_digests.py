"""Streams of transitions of random workloads, as digests: `python stream_digests.py plain|compiled SEEDS`."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np

from cotenant.core.cluster import Cluster
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


def streams(compiled: bool, seeds: int) -> dict[str, str]:
    """Policy, costs and seed -> digest of every transition with its time and exact GPUs, and how many there were."""
    found = {}
    for policy in POLICIES:
        for name, costs in COSTS.items():
            for seed in range(seeds):
                work = random_workload(seed, 25, 6)
                experiment = Experiment(
                    work, Cluster.parse("2x4"), policy, costs="20", stop_costs=costs, transitions=True,
                    compiled=compiled, seed=seed, skip_infeasible=True,
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
