"""Live: two CPU-hungry and two light jobs on two cores, under `proportional` and `synergy-tune`.

    python -m bench.synergy_live [--runs 3] [--seconds 2]

Profiles both scripts first (`cotenant profile`), lets the simulator foretell both schedules from those curves, then
runs them for real on four virtual GPUs, cores by quotas of control groups, and compares: median of the runs. On a
machine that is busy with other things two cores cannot be had: `--cores 0.4` deals out less, in the same parts.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
START_CPU_S = 0.11  # of Python and its imports, about
RULES = ("proportional", "synergy-tune", "synergy-knapsack")
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # of the jobs


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs (name and steps) on so many cores, the command line of each, and what one takes to start and to end, mean
    (None: measured beforehand)."""

    jobs: tuple[tuple[str, int], ...]
    cores: float
    command: Callable[[str, int], Sequence[str]]
    start_s: float | None
    least: float  # cores to profile with, at least
    gpus: Any = 4  # virtual ones, as `serve --gpus` has them


@dataclass(frozen=True, slots=True)
class Compared:
    """Mean completion times of the jobs under one allocator, seconds."""

    rule: str
    live_s: float
    foretold_s: float

    @property
    def off(self) -> float:
        """What was foretold against what happened."""
        return self.foretold_s / self.live_s - 1


def two_cores(cores: float) -> Case:
    """With half the cores of two, steps take half the CPU time and as long in all."""

    def command(name: str, steps: int) -> list[str]:
        step_s, cpu_s = (HUNGRY_S, HUNGRY_S) if name == "hungry" else (LIGHT_S, LIGHT_CPU_S)
        cpu_s *= cores / 2
        times = ["--cpu", f"{cpu_s:.5f}", "--wait", f"{step_s - cpu_s:.5f}"]
        return [sys.executable, str(EXAMPLES / "cpu_steps.py"), "--steps", str(steps), *times]

    jobs = (("hungry", 1200), ("hungry", 1200), ("light", 500), ("light", 500))
    return Case(jobs, cores, command, START_CPU_S / (cores / len(jobs)), cores / 20)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.synergy_live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="per point of the profiles")
    parser.add_argument("--rules", default=",".join(RULES[:2]))
    parser.add_argument("--cores", type=float, default=2.0, help="cores to deal out")
    options = parser.parse_args()
    compare(two_cores(options.cores), options.rules.split(","), options.runs, options.seconds)


def compare(case: Case, rules: Sequence[str], runs: int, seconds: float) -> list[Compared]:
    """Profile, foretell, run and print."""
    with tempfile.TemporaryDirectory(prefix="cotenant-live-") as folder:
        curves = Path(folder) / "curves.json"
        measure(case, Path(folder), curves, seconds)
        start_s = case.start_s if case.start_s is not None else starting_s(case, Path(folder), curves)
        foretold = {rule: foretell(case, curves, rule, start_s) for rule in rules}
        real: dict[str, list[list[float]]] = {rule: [] for rule in rules}
        for number in range(runs):
            for rule in rules:
                real[rule].append(run(case, Path(folder) / f"{rule}-{number}", rule, curves))
                print(f"run {number + 1}, {rule}: " + ", ".join(f"{s:.2f} s" for s in real[rule][-1]), flush=True)
    found = [Compared(rule, median(mean(jcts) for jcts in real[rule]), mean(foretold[rule])) for rule in rules]
    print(f"\n{'allocator':18} {'mean JCT, s':>12} {'foretold':>9} {'off by':>7} {'against ' + rules[0]:>21}")
    for one in found:
        gain = found[0].live_s / one.live_s
        print(f"{one.rule:18} {one.live_s:12.2f} {one.foretold_s:9.2f} {one.off:7.1%} {gain:20.2f}x")
    return found


def measure(case: Case, folder: Path, curves: Path, seconds: float) -> None:
    """Profile the scripts."""
    backend = LocalBackend(folder / "profile", gpus=0)
    for name in dict(case.jobs):
        command = case.command(name, 10**6)
        found = profile_cores(backend, command, most=case.cores, least=case.least, seconds=seconds, env=ENV)
        save_curve(curves, name, found.curve)
        pairs = ", ".join(f"{c:g}: {r:.1f}" for c, r in zip(found.curve.cores, found.curve.steps_per_s, strict=True))
        print(
            f"{name}: steps/s by cores {pairs} ({found.measurements} measurements, {found.seconds:.0f} s)", flush=True
        )
    backend.close()


def starting_s(case: Case, folder: Path, curves: Path) -> float:
    """What jobs of one step take under the service, mean; the second time, when the libraries have been read."""
    short = replace(case, jobs=tuple((name, 1) for name, _ in case.jobs))
    cold, warm = (mean(run(short, folder / f"start-{number}", RULES[0], curves)) for number in range(2))
    print(f"starting and ending: {warm:.2f} s (the first time {cold:.2f} s)", flush=True)
    return warm


def foretell(case: Case, curves: Path, rule: str, start_s: float) -> list[float]:
    """Completion times in the simulator, from the measured curves."""
    names = tuple(load_curves(curves))
    top = {name: curve.top for name, curve in load_curves(curves).items()}
    count = len(case.jobs)
    seconds = np.array([steps / top[name] for name, steps in case.jobs])
    code = np.array([names.index(name) for name, _ in case.jobs], np.int64)
    work = make_workload("live", np.zeros(count), np.ones(count, np.int64), seconds, model=Codes(code, names))
    cluster = Cluster.parse(f"1x{count}/cpu={case.cores},mem=16")
    outcome = simulate(Experiment(work, cluster, "fifo", allocator=rule, profile=str(curves), compiled=False))
    return [float(s) + start_s for s in outcome.finish_s]


def run(case: Case, home: Path, rule: str, curves: Path) -> list[float]:
    """Completion times of the jobs under the service."""
    with live_service(home, "fifo", allocator=rule, curves=str(curves), gpus=case.gpus) as service:
        there = service.backend.nodes()
        service.backend.nodes = lambda: [replace(node, cpus=case.cores) for node in there]  # type: ignore[method-assign]
        lines = [(name, shlex.join(case.command(name, steps))) for name, steps in case.jobs]
        specs = [parse_job({"run": line, "name": name, "gpus": 1, "env": ENV}) for name, line in lines]
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
