"""Muri beside the released simulator, under corrected rules, and what grouping costs.

`python -m bench.muri`; COTENANT_DATA (default ../shared/data) names the folder above muri/ with the traces. Tables:

* released: `--compat muri` on cluster_trace.csv, 8 nodes of 8 GPUs, beside the published artifact's own results.
* corrected: the same jobs when start-up is charged once per start and GPU memory (32 GiB) is kept.
* grouping: seconds to group waiting jobs of 8 GPUs, and the total weight against exact matching.
* trace2: a whole run of 5,755 jobs under muri-s (compiled kernels; `python -m cotenant.sim.warm` first).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.cycles import Cycles
from cotenant.core.workload import Workload
from cotenant.policies.muri.grouping import Grouping
from cotenant.sim.driver import Experiment, simulate
from cotenant.solvers.pairing import pair_kinds
from cotenant.workload.readers import read
from cotenant.workload.stages import stages_of

# policy: average JCT and makespan of the released simulator, seconds
RELEASED = {
    "fifo": (950_684.342, 4_224_129.3),
    "srtf": (247_452.951, 4_066_820.0),
    "srsf": (233_909.169, 4_198_586.6),
    "tiresias-l": (328_736.501, 3_991_729.1),
    "muri-s": (120_033.714, 2_663_198.7),
    "muri-l": (127_846.003, 2_671_191.1),
}
CORRECTED = ("srtf", "srsf", "tiresias-l", "muri-s", "muri-s:autopack=false", "muri-s:order=worst",
             "muri-s:matching=false", "muri-s:group=2", "muri-l")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.muri", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("released", "corrected", "grouping", "trace2"), help="one table only")
    only = parser.parse_args().only
    folder = _folder()
    work = read(folder / "cluster_trace.csv")
    if only in (None, "released"):
        _released(work)
    if only in (None, "corrected"):
        _corrected(work)
    if only in (None, "grouping"):
        _grouping(work)
    if only in (None, "trace2"):
        _trace2(folder)


def _folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("COTENANT_DATA") or default) / "muri"
    if not folder.is_dir():
        sys.exit(f"bench.muri: {folder} is not a folder; COTENANT_DATA must name the folder above muri/")
    return folder


def _released(work: Workload) -> None:
    print("\n--compat muri, cluster_trace.csv, 8x8 (autopack on)")
    print(f"{'policy':12} {'avg JCT s':>12} {'released':>12} {'diff %':>7} {'makespan s':>12} {'diff %':>7}")
    for policy, (jct_s, makespan_s) in RELEASED.items():
        found = simulate(Experiment(work, Cluster.parse("8x8"), policy, compat=("muri",), compiled=False)).summary
        jct, makespan = float(str(found["avg_jct_s"])), float(str(found["makespan_s"]))
        diff, diff_m = 100 * (jct / jct_s - 1), 100 * (makespan / makespan_s - 1)
        print(f"{policy:12} {jct:12,.1f} {jct_s:12,.1f} {diff:7.2f} {makespan:12,.1f} {diff_m:7.2f}")


def _corrected(work: Workload) -> None:
    print("\ncorrected rules: start-up once per start, GPU memory (32 GiB) kept, durations of the trace")
    print(f"{'policy':24} {'avg JCT s':>12} {'median s':>10} {'p99 s':>12} {'makespan s':>12} {'starts/job':>10}")
    for policy in CORRECTED:
        result = simulate(Experiment(work, Cluster.parse("8x8"), policy, costs="startup", compiled=False))
        found = result.summary
        starts = 1 + float((result.preemptions + result.restarts).mean())
        print(
            f"{policy:24} {found['avg_jct_s']:12,.0f} {found['p50_jct_s']:10,.0f} {found['p99_jct_s']:12,.0f} "
            f"{found['makespan_s']:12,.0f} {starts:10.1f}"
        )


def _grouping(work: Workload) -> None:
    stages = stages_of(work)
    assert stages is not None
    eights = np.flatnonzero(stages.gpus == 8)
    draw = np.random.default_rng(0)
    print("\ngrouping of waiting jobs of 8 GPUs, eight models at random, room for a quarter of them")
    print(f"{'jobs':>6} {'CPU s':>8} {'groups':>7}")
    for count in (500, 1000, 2000):
        kinds = draw.choice(eights, count).tolist()
        grouping = Grouping(Cycles(stages))
        began = time.process_time()
        groups = grouping.group(range(count), [8] * count, kinds, 8 * (count // 4))
        print(f"{count:6} {time.process_time() - began:8.3f} {len(groups):7}")
    cycles = Cycles(stages)
    for count in (500,):
        of, counts = np.unique(draw.choice(eights, count), return_counts=True)
        weight = np.array([[cycles.efficiency(tuple(sorted((a, b)))) for b in of.tolist()] for a in of.tolist()])
        began = time.process_time()
        exact = pair_kinds(weight, counts, exact_up_to=10**9)
        exact_s = time.process_time() - began
        began = time.process_time()
        quick = pair_kinds(weight, counts)
        quick_s = time.process_time() - began
        loss = 1 - float((weight * quick).sum()) / float((weight * exact).sum())
        print(f"{count} jobs, one round: exact {exact_s:.2f} s, by kinds {quick_s:.4f} s, loss of weight {loss:.2e}")


def _trace2(folder: Path) -> None:
    work = read(folder / "trace2.csv")
    for compat in ((), ("muri",)):
        simulate(Experiment(work.take(np.arange(200)), Cluster.parse("8x8"), "muri-s", compat=compat, compiled=True))
        began, cpu = time.perf_counter(), time.process_time()
        found = simulate(
            Experiment(work, Cluster.parse("8x8"), "muri-s", compat=compat, costs="startup", compiled=True)
        ).summary
        print(
            f"\ntrace2.csv, {len(work)} jobs, muri-s{' --compat muri' if compat else ''}: "
            f"{time.perf_counter() - began:.1f} s wall, {time.process_time() - cpu:.1f} s CPU, "
            f"{found['decisions']} decisions, avg JCT {found['avg_jct_s']:,.0f} s"
        )


if __name__ == "__main__":
    main()
