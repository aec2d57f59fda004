"""Synergy beside its released simulator, and beyond it: `python -m bench.synergy [--only compat,costs,...]`.

* `compat`: mean completion times against the reference results of the released simulator, same rounds and habits.
* `costs`: the same traces with restart costs, exact finish times, events instead of rounds and leases kept.
* `mixes`: one round on random mixes, parts of the optimum (`bench.synergy_mixes`).
* `sweeps`: load, share of CPU-hungry jobs, cores per GPU (`bench.synergy_sweeps`).
* `beliefs`: what optimistic profiling costs and loses, and the other allocators.
* `mixed`: GPU types by Gavel's fractions, cores and memory by an allocator inside each type.
* `scale`: one tuned round of 10,000 GPUs and 5,000 jobs.

Exit status 1 where a row of `compat` is off by more than a thousandth. Reads the trace collection named by
COTENANT_DATA. Times are CPU seconds of this process; kernels are compiled before.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import synergy_mixes, synergy_sweeps
from cotenant.allocation import Share, demands, make_allocator
from cotenant.allocation.once import pack_once, throughput
from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.workload import make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate
from cotenant.workload.readers import read

ALLOWED = 0.001
RULES = ("proportional", "synergy-greedy", "synergy-tune")
SMALL, LARGE = "4x8/cpu=24,mem=500", "16x8/cpu=24,mem=500"
T1, T2 = "repo_static_100.csv", "repo_dynamic_srtf.csv"
T3, T4, T7 = "t3_single_1000_l8.csv", "t4_multi_600_l3.5.csv", "t7_readme_single_6400_l9.csv.gz"
THEIRS: tuple[tuple[str, str, str, tuple[float | None, ...]], ...] = (
    (T1, SMALL, "fifo", (5.6311, 5.4944, 5.0828)),
    (T2, SMALL, "fifo", (4.6226, 3.8817, 3.6751)),
    (T2, SMALL, "srtf", (3.9067, 3.2326, 3.1884)),
    (T2, SMALL, "las", (4.5551, 4.0534, 3.6701)),
    (T2, SMALL, "ftf", (6.2967, 6.4117, 4.9301)),
    (T3, LARGE, "fifo", (17.417, 14.998, 14.998)),
    (T3, LARGE, "srtf", (17.398, 15.003, 15.000)),
    (T3, LARGE, "las", (17.405, 14.998, 14.998)),
    (T3, LARGE, "ftf", (17.474, 18.391, 15.115)),
    (T4, LARGE, "fifo", (17.981, 15.891, 15.891)),
    (T4, LARGE, "srtf", (17.966, 15.891, 15.891)),
    (T4, LARGE, "las", (17.954, 15.891, 15.892)),
    (T7, LARGE, "fifo", (81.0886, None, 21.8766)),
)
"""Trace, cluster, policy, and the released simulator's mean completion time in hours under each rule."""


def main() -> None:
    options = _options()
    data = Path(options.data) / "synergy"
    wanted = options.only.split(",")
    if set(wanted) - {"mixed", "beliefs"}:
        _compile(data)
    held = "compat" not in wanted or compat(data)
    if "costs" in wanted:
        costs(data)
    if "mixes" in wanted:
        synergy_mixes.print_table(data / "synergy_profiles.json", options.mixes)
    if "sweeps" in wanted:
        synergy_sweeps.print_tables(data / "synergy_profiles.json", options.jobs)
    if "beliefs" in wanted:
        beliefs(data)
    if "mixed" in wanted:
        mixed()
    if "scale" in wanted:
        scale(data)
    sys.exit(0 if held else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.synergy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("COTENANT_DATA") or "../shared/data")
    parser.add_argument("--only", default="compat,costs,mixes,sweeps,beliefs,mixed,scale")
    parser.add_argument("--mixes", type=int, default=200, help="random mixes per line")
    parser.add_argument("--jobs", type=int, default=600, help="jobs per point of the sweeps")
    return parser.parse_args()


def _compile(data: Path) -> None:
    began = time.perf_counter()
    jit.enable()
    for rule in ("synergy-tune", "synergy-greedy", "synergy-knapsack"):
        for compat_ in (("synergy",), ()):
            if not (compat_ and rule == "synergy-knapsack"):
                simulate(_experiment(data, T2, SMALL, "srtf", rule, compat=compat_, compiled=True, until_s=3000.0))
    print(f"kernels compiled or loaded in {time.perf_counter() - began:.1f} s\n")


def _experiment(data: Path, trace: str, cluster: str, policy: str, allocator: str, **more: Any) -> Experiment:
    if trace == T7:
        more["measure"] = (4000, 4999)
    profile = str(data / "synergy_profiles.json")
    work = read(data / trace)
    return Experiment(work, Cluster.parse(cluster), policy, allocator=allocator, profile=profile, **more)


def _timed(experiment: Experiment) -> tuple[dict[str, Any], float]:
    began = time.process_time()
    summary = simulate(experiment).summary
    return summary, time.process_time() - began


def _heads(columns: str) -> str:
    """`mean,h:9` becomes a right-aligned "mean h" of width 9."""
    cells = (column.rsplit(":", 1) for column in columns.split())
    return "".join(f" {name.replace(',', ' '):>{width}}" for name, width in cells)


def compat(data: Path) -> bool:
    """Whether all are theirs."""
    held = True
    print("Mean completion time in hours, --compat synergy: ours, theirs (released simulator), ratio, CPU s")
    print(f"{'trace':32} {'policy':6} {'allocator':16}" + _heads("ours:9 theirs:9 ratio:8 p50,h:8 p99,h:8 CPU,s:7"))
    for trace, cluster, policy, theirs in THEIRS:
        for rule, reference in zip(RULES, theirs, strict=True):
            if reference is None:
                continue
            s, spent = _timed(_experiment(data, trace, cluster, policy, rule, compat=("synergy",), compiled=True))
            hours = s["avg_jct_s"] / 3600
            print(
                f"{trace:32} {policy:6} {rule:16} {hours:9.4f} {reference:9.4f} {hours / reference:8.5f} "
                f"{s['p50_jct_s'] / 3600:8.2f} {s['p99_jct_s'] / 3600:8.2f} {spent:7.2f}",
                flush=True,
            )
            held &= abs(hours / reference - 1) <= ALLOWED
    print()
    return held


def costs(data: Path) -> None:
    print("The same with restart costs, exact finish times, events instead of rounds, leases kept (compat: from above)")
    widths = "mean,h:9 compat:9 p50,h:8 p99,h:8 stops:7 CPU,%:6 CPU,s:7"
    print(f"{'trace':32} {'policy':6} {'allocator':16}" + _heads(widths))
    for trace, cluster, policy, theirs in THEIRS:
        for rule, reference in zip((*RULES, "synergy-knapsack"), (*theirs, None), strict=True):
            s, spent = _timed(_experiment(data, trace, cluster, policy, rule, compiled=True))
            print(
                f"{trace:32} {policy:6} {rule:16} {s['avg_jct_s'] / 3600:9.4f} {reference or float('nan'):9.4f} "
                f"{s['p50_jct_s'] / 3600:8.2f} {s['p99_jct_s'] / 3600:8.2f} {s['preemptions']:7d} "
                f"{100 * s['cpu_utilization']:6.1f} {spent:7.2f}",
                flush=True,
            )
    print()


def beliefs(data: Path) -> None:
    """Few measurements instead of the truth, and every allocator once, on the trace of 100 arriving jobs."""
    print(f"{T2} under srtf with restart costs: what is believed, and all allocators")
    print(f"{'allocator':44}" + _heads("mean,h:9 p99,h:8 stops:7 profiling,h:12"))
    tune = "synergy-tune:profiling=optimistic"
    rest = ("synergy-knapsack", "synergy-opt", "synergy-tune:round=300", "synergy-tune:round=300,keep=false")
    for rule in ("synergy-tune", tune, f"{tune},noise=0.05", f"{tune},noise=0.1", *rest, "drf", "tetris", "fixed"):
        s, _ = _timed(_experiment(data, T2, SMALL, "srtf", rule, compiled=False))
        times = f"{s['avg_jct_s'] / 3600:9.3f} {s['p99_jct_s'] / 3600:8.2f}"
        print(f"{rule:44} {times} {s['preemptions']:7d} {s['profiling_s'] / 3600:12.2f}", flush=True)
    print()


def mixed(jobs: int = 150) -> None:
    """Servers with few cores beside new GPUs, and with many beside older ones: what each axis is worth."""
    spec = f"gavel-like:jobs={jobs},models=h200,load=1.5,seed=2"
    cluster = Cluster.parse("4x4:h200/cpu=24,mem=400+4x4:a100/cpu=64,mem=800")
    work = generate(Spec.parse(spec), cluster.gpus)
    print(f"Mixed cluster {cluster.spec}, {spec}, profile h200-loader")
    print(f"{'policy':28} {'allocator':16}" + _heads("mean,h:9 p50,h:8 p99,h:8 stops:7 CPU,s:7"))
    for policy in ("srtf", "gavel:objective=las", "gavel:objective=throughput"):
        for rule in ("proportional", "synergy-tune", "synergy-knapsack"):
            s, spent = _timed(Experiment(work, cluster, policy, allocator=rule, profile="h200-loader", compiled=False))
            times = "".join(f" {s[key] / 3600:{width}.2f}" for key, width in (("avg_jct_s", 9), ("p50_jct_s", 8)))
            rest = f"{s['p99_jct_s'] / 3600:8.2f} {s['preemptions']:7d} {spent:7.2f}"
            print(f"{policy:28} {rule:16}{times} {rest}", flush=True)
    print()


def scale(data: Path, gpus: int = 10_000, jobs: int = 5_000) -> None:
    """A round from empty, and a whole decision of the engine, on servers of 8 GPUs, 24 cores and 500 GB."""
    models = [model for group in synergy_mixes.CLASSES.values() for model in group]
    matrices = synergy_mixes.sensitivity_of(data / "synergy_profiles.json", models)
    sizes = np.array([1, 2, 4, 8])
    rng = np.random.default_rng(0)
    gangs = np.repeat(sizes, len(models))
    many = matrices.take(np.tile(np.arange(len(models)), len(sizes)))
    model = synergy_mixes.draw(rng, synergy_mixes.MIXES["20/70/10"], jobs)
    size = rng.choice(len(sizes), size=jobs, p=[0.70, 0.10, 0.15, 0.05])
    kind = size * len(models) + model
    fits = np.cumsum(gangs[kind]) <= gpus
    share = Share(8, 24, 500)
    asked = demands(many, gangs, share)
    busy = int(gangs[kind[fits]].sum())
    print(f"One round from empty: {gpus} GPUs on {gpus // 8} servers, {int(fits.sum())} jobs on {busy} GPUs")
    print(f"{'allocator':18} {'CPU s':>8} {'speed, share = 1':>18}")
    for rule in (*RULES, "synergy-knapsack", "synergy-opt"):
        best = np.inf
        for _ in range(3):
            began = time.process_time()
            packing = pack_once(make_allocator(rule), kind[fits], gangs, asked, share, gpus // 8)
            best = min(best, time.process_time() - began)
        print(f"{rule:18} {best:8.3f} {throughput(packing) / fits.sum():18.3f}", flush=True)
    print()
    _scale_engine(data, gpus, jobs, [models[at] for at in model], sizes[size])


def _scale_engine(data: Path, gpus: int, jobs: int, model: list[str], size: Any) -> None:
    from cotenant.core.workload import Codes
    from cotenant.sim.driver import Simulation

    names = tuple(dict.fromkeys(model))
    code = np.array([names.index(name) for name in model], np.int64)
    submit = np.concatenate([np.zeros(jobs - 40), np.arange(1, 41) * 1.0])
    work = make_workload("scale", submit, size, np.full(jobs, 36000.0), model=Codes(code, names))
    print(f"Decisions of the engine: {jobs} jobs at once, then 40 arrivals one by one")
    print(f"{'allocator':18} {'policy':6} {'first, CPU s':>13} {'each later, CPU s':>18}")
    for rule in ("synergy-tune", "synergy-knapsack"):
        for policy in ("backfill", "srtf"):
            e = Experiment(
                work, Cluster.parse(f"{gpus // 8}x8/cpu=24,mem=500"), policy, allocator=rule,
                profile=str(data / "synergy_profiles.json"), compiled=True,
            )  # fmt: skip
            run = Simulation(e)
            began = time.process_time()
            run.advance(0.5)
            first = time.process_time() - began
            began = time.process_time()
            run.advance(40.5)
            print(f"{rule:18} {policy:6} {first:13.3f} {(time.process_time() - began) / 40:18.3f}", flush=True)
    print()


if __name__ == "__main__":
    main()
