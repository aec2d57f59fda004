"""Compile every kernel once and leave the result in the cache: `python -m cotenant.sim.warm`."""

from __future__ import annotations

import sys
import time

import numpy as np

from cotenant.allocation import ALLOCATORS
from cotenant.compat import SYSTEMS
from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.view import View
from cotenant.core.workload import Floats, make_workload
from cotenant.engine.cycle import Engine
from cotenant.policies import known_policies
from cotenant.policies.base import PriorityPolicy
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate


class _ByGpus(PriorityPolicy):
    """Exercises the path of policies written in Python."""

    name = "warm"

    def priority(self, view: View) -> Floats:
        return view.gpus * view.remaining_s


def warm() -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    jit.enable()
    jobs = 12
    work = make_workload(
        "warm-up", np.arange(jobs, dtype=np.float64) * 2.0, np.ones(jobs, np.int64), np.full(jobs, 7.0)
    )
    run = Simulation(Experiment(work, Cluster.parse("1x2"), "srsf", compiled=True))
    run.advance(np.inf)
    run = Simulation(Experiment(work, Cluster.parse("1x2"), "srsf", compiled=True))
    run.engine = Engine(run.state, _ByGpus(), _ByGpus().rule(run.context))
    run.advance(np.inf)
    run.engine.order(0.0)
    pooled = [
        name
        for name, policy in known_policies().items()
        if (traits := policy().traits).names_pools and not traits.interleaves
    ]
    for policy in pooled:
        for compat in ((), *((name,) for name, system in SYSTEMS.items() if system.paces_rounds)):
            mixed = Cluster.parse("1x2:v100+1x1:k80")
            Simulation(Experiment(work, mixed, policy, compat=compat, compiled=True)).advance(np.inf)
    for allocator in (name for name, kind in ALLOCATORS.items() if "budget" not in kind.own):
        hosts = Cluster.parse("1x2/cpu=8,mem=64")
        e = Experiment(work, hosts, "srtf", allocator=allocator, profile="h200-loader", compiled=True)
        Simulation(e).advance(np.inf)
    elastic = generate(Spec.parse("ones-like:jobs=2,seed=0"), 16)
    Simulation(Experiment(elastic, Cluster.parse("4x4"), "ones", compiled=True)).advance(np.inf)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write(f"kernels ready after {warm():.1f} s\n")
