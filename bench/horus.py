"""Horus beside the baselines of its paper, what its predictions are worth, and what beliefs about pairs are to others.

`python -m bench.horus [--jobs 600] [--seeds 3] [--load 1.5] [--sharing mps] [--memory 143771] [--policies "..."]`. A
philly-like workload of the eight models of the H200 on 64 GPUs (8x8:h200); the truth is the measured table. Means over
seeds of average, median and 95th percentile of JCT, of the queueing time and of the makespan, in seconds; placements
that would have run out of memory because its prediction was too small. `--memory` is that of a GPU in MiB: small ones
make memory matter. Baselines as in the paper: first come first served by whole GPUs (strict, and with those that fit
overtaking), and taking turns as Gandiva does, without and with packing; beyond it `sjf-ffs`, which shares without any
test. `--profile FILE` plays the models of a file that `cotenant profile` wrote (as
docs/hardware/profile-earlier.json), whose
utilisation is measured, on a type named as there. `--longest S` cuts jobs to so many seconds: one job that is much
longer than all others decides the makespan, whatever is shared. At the end the gains of `horus` and `horus+` over each
of them beside what the paper claims. The work is the same under all, so GPUs are used more by as much as the makespan
is shorter. Exit status 1 unless both wait less than first come first served, by at least a half.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Workload
from cotenant.policies.horus import Horus
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate
from cotenant.workload.profiles.profile_file import load_profile_file
from cotenant.workload.profiles.roofline import GPUS

BASELINES = ("fifo", "fifo:strict=false", "gandiva:packing=false,migration=false", "gandiva", "sjf-ffs")
OURS = ("horus", "horus+")
PAPER = "the paper: makespan 23.7 to 30.7 % shorter, waiting 68.3 % shorter, GPUs used up to 61.5 % more"
POLICIES = (
    *BASELINES,
    *OURS,
    "horus:belief=profile",
    "horus:belief=profile,noise=0.2",
    "horus:belief=profile,noise=0.5",
    "horus:pairs=learned",
    "horus:pairs=oracle",
    "horus+:belief=profile",
)
COLUMNS = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "avg_queue_s", "makespan_s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.horus", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--sharing", default="mps", choices=("mps", "time-sliced"))
    parser.add_argument("--memory", type=float, default=GPUS["h200"].memory_mib)
    parser.add_argument("--policies", default="", help="separated by blanks")
    parser.add_argument("--longest", type=float, default=np.inf)
    parser.add_argument("--profile", type=Path, help="file of measured models instead of the table of the H200")
    options = parser.parse_args()
    models = tuple(load_profile_file(options.profile).models) if options.profile else ()
    print("| policy | avg JCT s | median | 95 % | queueing | makespan | out of memory |\n|---|---|---|---|---|---|---|")
    found: dict[str, np.ndarray] = {}
    for policy in options.policies.split() or POLICIES:
        rows = []
        for seed in range(options.seeds):
            spec = Spec.parse(f"philly-like:jobs={options.jobs},load={options.load},seed={seed},models=h200")
            work = generate(spec, 64, None)
            work = replace(work, duration_s=np.minimum(work.duration_s, options.longest))
            if models:
                work = replace(work, model=Codes(work.model.code % len(models), models))
            share = "time" if models and options.sharing == "time-sliced" else options.sharing
            rows.append(_one(work, policy, f"{options.profile or 'h200'}:sharing={share}", options.memory, seed))
        found[policy] = np.mean(rows, axis=0)
        print(f"| `{policy}` | " + " | ".join(f"{value:,.0f}" for value in found[policy]) + " |", flush=True)
    print(f"\n| policy | against | makespan | waiting | GPUs used |\n|---|---|---|---|---|  ({PAPER})")
    shorter = [True]
    for policy in (name for name in found if name.startswith(OURS)):
        for other in (name for name in BASELINES if name in found):
            waits, ends = (found[policy][at] / max(found[other][at], 1e-9) - 1 for at in (3, 4))
            print(f"| `{policy}` | `{other}` | {ends:+.1%} | {waits:+.1%} | {1 / (1 + ends) - 1:+.1%} |")
            shorter.append(policy not in OURS or not other.startswith("fifo") or waits <= -0.5)
    sys.exit(0 if all(shorter) else 1)


def _one(work: Workload, policy: str, profile: str, memory_mib: float, seed: int) -> list[float]:
    """The columns, and how often memory would have run out."""
    run = Simulation(
        Experiment(work, Cluster.parse("8x8:h200"), policy, profile=profile, seed=seed, skip_infeasible=True)
    )
    run.state.gpu_gib[:] = np.minimum(run.state.gpu_gib, memory_mib / 1024)
    run.advance(np.inf)
    found = run.outcome().summary
    burst = run.policy.out_of_memory if isinstance(run.policy, Horus) else 0
    return [*(float(str(found[name])) for name in COLUMNS), burst]


if __name__ == "__main__":
    main()
