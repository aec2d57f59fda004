"""Live: two CPU-hungry and two light jobs on two cores, under `proportional` and `synergy-tune`.

    python -m bench.synergy_live [--runs 3] [--seconds 2]

Profiles both scripts first (`cotenant profile`), lets the simulator foretell both schedules from those curves, then
runs them for real on four virtual GPUs, cores by quotas of control groups, and compares: median of the runs. On a
machine that is busy with other things two cores cannot be had: `--cores 0.4` deals out less, in the same parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from bench.demo import EXAMPLES, ME, live_service
from cotenant.backends.local import LocalBackend
from cotenant.core.cluster import Cluster
from cotenant.core.jobspec import parse_job
from cotenant.core.workload import Codes, make_workload
from cotenant.profiler import profile_cores
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.profiles.curves import load_curves, save_curve

HUNGRY_S, LIGHT_S, LIGHT_CPU_S = 0.02, 0.04, 0.001  # a step in all; of a light one, on the CPU
JOBS = (("hungry", 1200), ("hungry", 1200), ("light", 500), ("light", 500))
START_CPU_S = 0.11  # of Python and its imports, about
RULES = ("proportional", "synergy-tune", "synergy-knapsack")


def command(name: str, steps: int, cores: float) -> list[str]:
    """The command line of one job. With half the cores of two, steps take half the CPU time and as long in all."""
    step_s, cpu_s = (HUNGRY_S, HUNGRY_S) if name == "hungry" else (LIGHT_S, LIGHT_CPU_S)
    cpu_s *= cores / 2
    times = ["--cpu", f"{cpu_s:.5f}", "--wait", f"{step_s - cpu_s:.5f}"]
    return [sys.executable, str(EXAMPLES / "cpu_steps.py"), "--steps", str(steps), *times]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.synergy_live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="per point of the profiles")
    parser.add_argument("--rules", default=",".join(RULES[:2]))
    parser.add_argument("--cores", type=float, default=2.0, help="cores to deal out")
    options = parser.parse_args()
    rules = options.rules.split(",")
    with tempfile.TemporaryDirectory(prefix="cotenant-live-") as folder:
        curves = Path(folder) / "curves.json"
        measure(Path(folder), curves, options.cores, options.seconds)
        foretold = {rule: foretell(curves, rule, options.cores) for rule in rules}
        real: dict[str, list[list[float]]] = {rule: [] for rule in rules}
        for number in range(options.runs):
            for rule in rules:
                real[rule].append(run(Path(folder) / f"{rule}-{number}", rule, curves, options.cores))
                print(f"run {number + 1}, {rule}: " + ", ".join(f"{s:.2f} s" for s in real[rule][-1]), flush=True)
    print(f"\n{'allocator':18} {'mean JCT, s':>12} {'foretold':>9} {'off by':>7} {'against proportional':>21}")
    base = median(mean(jcts) for jcts in real[rules[0]])
    for rule in rules:
        seen, said = median(mean(jcts) for jcts in real[rule]), mean(foretold[rule])
        print(f"{rule:18} {seen:12.2f} {said:9.2f} {seen / said - 1:7.1%} {base / seen:20.2f}x")


def measure(folder: Path, curves: Path, cores: float, seconds: float) -> None:
    """Profile both scripts."""
    backend = LocalBackend(folder / "profile", gpus=0)
    for name in dict(JOBS):
        found = profile_cores(backend, command(name, 10**6, cores), most=cores, least=cores / 20, seconds=seconds)
        save_curve(curves, name, found.curve)
        pairs = ", ".join(f"{c:g}: {r:.1f}" for c, r in zip(found.curve.cores, found.curve.steps_per_s, strict=True))
        print(
            f"{name}: steps/s by cores {pairs} ({found.measurements} measurements, {found.seconds:.0f} s)", flush=True
        )
    backend.close()


def foretell(curves: Path, rule: str, cores: float) -> list[float]:
    """Completion times in the simulator, from the measured curves."""
    names = tuple(load_curves(curves))
    top = {name: curve.top for name, curve in load_curves(curves).items()}
    seconds = np.array([steps / top[name] for name, steps in JOBS])
    start_s = START_CPU_S / (cores / len(JOBS))  # of Python, at the proportional share
    code = np.array([names.index(name) for name, _ in JOBS], np.int64)
    work = make_workload("live", np.zeros(len(JOBS)), np.ones(len(JOBS), np.int64), seconds, model=Codes(code, names))
    cluster = Cluster.parse(f"1x{len(JOBS)}/cpu={cores},mem=16")
    outcome = simulate(Experiment(work, cluster, "fifo", allocator=rule, profile=str(curves), compiled=False))
    return [float(s) + start_s for s in outcome.finish_s]


def run(home: Path, rule: str, curves: Path, cores: float) -> list[float]:
    """Completion times of the four jobs under the service."""
    with live_service(home, "fifo", allocator=rule, curves=str(curves)) as service:
        there = service.backend.nodes()
        service.backend.nodes = lambda: [replace(node, cpus=cores) for node in there]  # type: ignore[method-assign]
        specs = [parse_job({"run": " ".join(command(*job, cores)), "name": job[0], "gpus": 1}) for job in JOBS]
        began = time.time()
        ids = [job for group in service.desk.submit(ME, specs) for job in group]
        while service.store.book.active:
            service.desk.wait_events(service.store.book.seq, 0.2)
        ended: list[Any] = [service.desk.job(ME, job) for job in ids]
    wrong = [job.id for job in ended if job.state != "succeeded"]
    if wrong:
        raise SystemExit(f"jobs {wrong} did not succeed: {json.dumps([job.reason for job in ended])}")
    return [job.ended_s - began for job in ended]


if __name__ == "__main__":
    main()
