"""Where Synergy's gain comes from: load, share of CPU-hungry jobs, cores per GPU (`python -m bench.synergy`).

Jobs of `synergy-like` on 128 GPUs, FIFO, restart costs charged. The jobs in the middle three fifths are measured.
A load above 1 is more than proportional shares can carry: there its queue grows as long as jobs come, so means say
how long the experiment was as much as how good the rule is; medians and p99 stand beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.generators import generate

LOADS = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6)
SPLITS = ("10/85/5", "20/70/10", "33/33/33", "50/0/50")
CORES = (1, 2, 3, 4, 5, 6)
RULES = ("proportional", "synergy-tune", "synergy-knapsack")


def point(profile: Path, jobs: int, rule: str, load: float, split: str = "20/70/10", cores: int = 3) -> dict[str, Any]:
    """One run: its summary."""
    work = generate(Spec.parse(f"synergy-like:jobs={jobs},load={load},split=[{split}],seed=1"), 128)
    cluster = Cluster.parse(f"16x8/cpu={8 * cores},mem=500")
    measure = (jobs // 5, jobs - jobs // 5 - 1)
    e = Experiment(
        work, cluster, "fifo", allocator=rule, profile=str(profile), measure=measure, compiled=True
    )  # fmt: skip
    return simulate(e).summary


def print_tables(profile: Path, jobs: int) -> None:
    print(
        f"Sweeps: synergy-like, {jobs} jobs a point, 128 GPUs, FIFO, restart costs; hours, and gain over proportional"
    )
    _table("load", [(f"{load:g}", {"load": load}) for load in LOADS], profile, jobs)
    _table("split", [(split, {"load": 1.0, "split": split}) for split in SPLITS], profile, jobs)
    _table("cores", [(f"{cores}", {"load": 0.9, "cores": cores}) for cores in CORES], profile, jobs)


def _table(title: str, points: list[tuple[str, dict[str, Any]]], profile: Path, jobs: int) -> None:
    heads = "".join(f" {name:>8} {'gain':>6}" for name in ("mean", "p50", "p99"))
    print(f"{title:10} {'allocator':18}{heads} {'queue':>8} {'CPU %':>6}")
    for label, options in points:
        base: dict[str, Any] = {}
        for rule in RULES:
            s = point(profile, jobs, rule, **options)
            base = base or s
            cells = ""
            for key in ("avg_jct_s", "p50_jct_s", "p99_jct_s"):
                cells += f" {s[key] / 3600:8.2f} {base[key] / s[key]:6.2f}"
            print(
                f"{label:10} {rule:18}{cells} {s['avg_queue_s'] / 3600:8.2f} {100 * s['cpu_utilization']:6.1f}",
                flush=True,
            )
    print()
