"""Gandiva: the experiments of its paper, and growing and shrinking: `python -m bench.gandiva`.

`--only slicing,packing,cluster-a,cluster-b,automl` are the paper's (`bench.gandiva_paper`), its figures beside ours.
Exit status 1 where turns cost 2 % or more, or a pair is not kept that gained in the paper, or one that did not is.
Cluster A is played at `--scale` of its size (jobs, servers), cluster B with `--jobs` of its 8,800 jobs.

`--only defrag`: what moving jobs together (`--defrag`) does to other policies.

`--only growth`: 50 jobs of `ones-like` on 64 GPUs with growth on and off, with the costs of the simulator (to grow 10 s
of loading beside training and a pause of 2 s, to shrink a pause of 2 s, a move a restore). The first setting is that of
ONES; in the third and fourth jobs are small, so that servers have GPUs to spare.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

from bench import gandiva_paper as paper

SMALL = "ones-like:jobs=50,gap=60,median=600,mix=[1:0.5/2:0.5]"
SETTINGS = (("16x4", "ones-like:jobs=50"), ("8x8", "ones-like:jobs=50"), ("16x4", SMALL), ("8x8", SMALL))
POLICIES = ("gandiva", "gandiva:grow_shrink=false", "gandiva:idle_s=0", "gandiva:idle_s=120")


PARTS = ("slicing", "packing", "cluster-a", "cluster-b", "automl", "defrag", "growth")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gandiva", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.2, help="of cluster A")
    parser.add_argument("--jobs", type=int, default=1500, help="of cluster B")
    parser.add_argument("--load", type=float, default=1.0, help="of cluster B")
    options = parser.parse_args()
    asked = options.only.split(",")
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"--only {unknown[0]}: write some of {', '.join(PARTS)}")
    plays: dict[str, Callable[[], bool | None]] = {
        "slicing": paper.slicing, "packing": paper.packing, "automl": paper.automl,
        "cluster-a": lambda: paper.cluster_a(options.scale, options.seeds),
        "cluster-b": lambda: paper.cluster_b(options.jobs, options.seeds, options.load),
        "defrag": lambda: defrag(options.seeds), "growth": lambda: growth(options.seeds),
    }  # fmt: skip
    held = True
    for name in asked:
        began = time.perf_counter()
        held &= plays[name]() is not False
        print(f"({name}: {time.perf_counter() - began:.0f} s)\n", flush=True)
    sys.exit(0 if held else 1)


def defrag(seeds: int) -> None:
    """Other policies with and without `--defrag`: philly-like, 300 jobs, load 1, 64 GPUs, default costs."""
    from cotenant.core.cluster import Cluster
    from cotenant.core.spec import Spec
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.workload.generators import generate

    paper.say(f"philly-like on 16x4, {seeds} seeds", "avg JCT s", "queue s", "moves", "gangs", "lost GPU-s")
    for policy in ("fifo", "backfill", "easy", "srtf"):
        for moves in (False, True):
            found = []
            for seed in range(seeds):
                work = generate(Spec.parse(f"philly-like:jobs=300,load=1,seed={seed}"), 64)
                result = simulate(Experiment(work, Cluster.parse("16x4"), policy, defrag=moves, seed=seed))
                keys = ("avg_jct_s", "avg_queue_s", "defrag_moves", "defrag_gangs", "lost_gpu_s")
                found.append([float(str(result.summary.get(key, 0))) for key in keys])
            cells = [f"{value:,.0f}" for value in np.mean(found, axis=0)[:2]]
            paper.say(policy + " --defrag" * moves, *cells, *(f"{value:.1f}" for value in np.mean(found, axis=0)[2:]))


def growth(seeds: int) -> None:
    for cluster, jobs in SETTINGS:
        print(f"{jobs} on {cluster}", flush=True)
        compare(cluster, jobs, seeds)


def compare(cluster: str, jobs: str, seeds: int) -> None:
    from cotenant.core.cluster import Cluster
    from cotenant.core.spec import Spec
    from cotenant.policies.gandiva.policy import Gandiva
    from cotenant.sim.driver import Experiment, Simulation
    from cotenant.workload.generators import generate

    heads = (*(f"seed {seed}" for seed in range(seeds)), "mean JCT s", "queue s", "use %", "grown", "shrunk", "wall s")
    print(f"{'policy':<34}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for policy in POLICIES:
        began = time.perf_counter()
        found, counts = [], np.zeros(2)
        for seed in range(seeds):
            work = generate(Spec.parse(f"{jobs},seed={seed}"), 64)
            run = Simulation(Experiment(work, Cluster.parse(cluster), policy, seed=seed, compiled=False))
            run.advance(np.inf)
            assert isinstance(run.policy, Gandiva)
            counts += run.policy.counts["grown"], run.policy.counts["shrunk"]
            found.append(run.outcome())
        jct = [float(result.jct_s.mean()) for result in found]
        queue, use = (np.mean([result.summary[key] for result in found]) for key in ("avg_queue_s", "gpu_utilization"))
        cells = (
            *(f"{value:,.1f}" for value in jct), f"{np.mean(jct):,.1f}", f"{queue:,.1f}", f"{100 * use:.1f}",
            *(f"{value:.1f}" for value in counts / seeds), f"{time.perf_counter() - began:.1f}",
        )  # fmt: skip
        print(f"{policy:<34}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
