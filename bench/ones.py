"""Elastic sizes by evolution: `python -m bench.ones`.

50 jobs of `ones-like` on 16 nodes of 4 GPUs under ONES, an Optimus-like greedy and Tiresias-L, over five seeds, with
the costs of the simulator (a stop 60 s; a change of size of ONES 10 s of loading beside training and a pause of 2 s, of
Optimus a restore of 60 s). Then the time of one evolution step. The authors' means are from a live run of another 50
jobs; only the order can be compared.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

# (policy, the authors' mean JCT in seconds)
POLICIES = (
    ("ones", 214.0),
    ("tiresias-l", 501.7),
    ("optimus", 452.9),
    ("ones:progress=sample", None),
    ("ones:score=sruf,progress=sample", None),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ones", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps-only", action="store_true", help="only the time of an evolution step")
    options = parser.parse_args()
    if not options.steps_only:
        compare(options.seeds)
    for gpus, jobs in ((64, 64), (256, 128), (1024, 64), (1024, 512)):
        step_time(gpus, jobs)


def compare(seeds: int) -> None:
    from cotenant.core.cluster import Cluster
    from cotenant.core.spec import Spec
    from cotenant.sim.driver import Experiment, simulate
    from cotenant.workload.generators import generate

    heads = (
        *(f"seed {seed}" for seed in range(seeds)),
        "mean JCT s",
        "authors s",
        "queue s",
        "goodput",
        "stops",
        "wall s",
    )
    print(f"{'policy':<34}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for policy, known in POLICIES:
        began = time.perf_counter()
        runs = []
        for seed in range(seeds):
            work = generate(Spec.parse(f"ones-like:jobs=50,seed={seed}"), 64)
            runs.append(simulate(Experiment(work, Cluster.parse("16x4"), policy, seed=seed, compiled=False)))
        jct = [float(run.jct_s.mean()) for run in runs]
        queue, stops = (np.mean([run.summary[key] for run in runs]) for key in ("avg_queue_s", "preemptions"))
        good = np.mean([run.summary["goodput"] for run in runs])
        cells = (
            *(f"{value:,.1f}" for value in jct), f"{np.mean(jct):,.1f}", "-" if known is None else f"{known:,.1f}",
            f"{queue:,.1f}", f"{good:.2f}", f"{stops:.1f}", f"{time.perf_counter() - began:.1f}",
        )  # fmt: skip
        print(f"{policy:<34}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


def step_time(gpus: int, jobs: int) -> None:
    """Processor time of one generation (16 schedules, 48 candidates) and of placing its winner."""
    from cotenant.policies.ones.evolution import Limits, first_population, generation, order_by_gain

    rng = np.random.default_rng(0)
    cap = rng.choice([1, 2, 4, 8, 16, 32, 64], jobs)
    young = rng.random(jobs) < 0.2
    sizes = np.arange(gpus + 1)
    pace = sizes[None, :] ** rng.uniform(0.4, 0.9, (jobs, 1)) / rng.uniform(100, 10_000, (jobs, 1))
    taken = []
    genomes = first_population(16, gpus, jobs, rng)
    for _ in range(30):
        began = time.process_time()
        limits = Limits(cap, cap, young, *order_by_gain(np.diff(pace, axis=1), young, cap))
        genomes = generation(genomes, limits, -pace, rng)
        taken.append(time.process_time() - began)
    print(
        f"evolution step at {gpus:,} GPUs and {jobs} jobs: median {1000 * np.median(taken):.1f} ms, "
        f"largest of {len(taken)} {1000 * max(taken):.1f} ms of processor time"
    )


if __name__ == "__main__":
    main()
