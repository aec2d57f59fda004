"""Many runs side by side: policies times seeds times loads, on several processes, always in the same order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from cotenant.core import jit
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Workload
from cotenant.policies import make_policy
from cotenant.sim.driver import Experiment, is_large, simulate
from cotenant.sim.ray_sweep import play_on_ray
from cotenant.sim.workers import can_fork, in_processes

_ASKED = 20.0  # times as long as an order of columns: a policy that is asked in Python


@dataclass(frozen=True, slots=True)
class Run:
    """One cell of a sweep."""

    policy: str
    seed: int
    load: float | None
    varied: tuple[tuple[str, str], ...] = ()  # what else differs, as it was written: ("placement", "spread")


MakeExperiment = Callable[[Run], Experiment]


def plan_runs(
    policies: Sequence[str],
    seeds: Sequence[int],
    loads: Sequence[float | None],
    grid: Mapping[str, Sequence[str]] | None = None,
) -> list[Run]:
    """All cells: what else is varied outside, then loads, policies, and seeds inside."""
    names = list(grid or {})
    cells = [tuple(zip(names, values, strict=True)) for values in product(*(grid or {}).values())]
    return [Run(p, seed, load, cell) for cell in cells for load in loads for p in policies for seed in seeds]


def run_all(runs: Sequence[Run], make: MakeExperiment, workers: int) -> Iterator[Outcome]:
    """Outcomes in the order of `runs`."""
    ready: dict[int, Outcome] = {}
    given = 0
    for at, outcome in run_each(runs, make, workers):
        ready[at] = outcome
        while given in ready:
            yield ready.pop(given)
            given += 1


def run_each(
    runs: Sequence[Run],
    make: MakeExperiment,
    workers: int,
    tell: Callable[[str], None] = lambda note: None,
    ray: str | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes with their places in `runs`, as they are done. Workers are forked: they share workloads and kernels.

    `tell` hears of runs that are repeated because their process died. `ray`: the address of a Ray cluster, '' for the
    usual one, whose cores do the work instead.
    """
    experiments = [make(run) for run in runs]
    if any(is_large(e.workload, e.cluster) for e in experiments):
        jit.enable()
    if ray is not None:
        for at, (run, outcome) in enumerate(zip(runs, play_on_ray(experiments, ray), strict=True)):
            yield at, _labelled(outcome, run)
        return
    if workers <= 1 or len(runs) == 1 or not can_fork():
        for at, (run, experiment) in enumerate(zip(runs, experiments, strict=True)):
            yield at, _labelled(simulate(experiment), run)
        return
    order = sorted(range(len(runs)), key=lambda at: -_expected(experiments[at], runs[at]))
    answers = in_processes(lambda at: _run_one(experiments[at]), order, min(workers, len(runs)), tell)
    for at, (outcome, notes) in answers:
        experiments[at].notes.extend(notes)
        full = outcome if len(outcome.workload) else replace(outcome, workload=experiments[at].workload)
        yield at, _labelled(full, runs[at])


def default_workers() -> int:
    """One process per core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scale_load(work: Workload, cluster_gpus: int, load: float) -> Workload:
    """The same jobs, arriving faster or slower so that the offered load is as asked."""
    factor = work.load(cluster_gpus) / load
    first = work.submit_s[0]
    return replace(work, submit_s=first + (work.submit_s - first) * factor)


def _run_one(experiment: Experiment) -> tuple[Outcome, list[str]]:
    """Run one experiment in a worker. The workload does not travel back unless jobs were left out."""
    outcome = simulate(experiment)
    if outcome.workload is experiment.workload:
        outcome = replace(outcome, workload=outcome.workload.take(np.zeros(0, np.int64)))
    return outcome, experiment.notes


def _expected(experiment: Experiment, run: Run) -> float:
    """How long a run takes, against others: long ones begin first, so that no core is idle while the last one ends."""
    traits = make_policy(experiment.policy).traits if experiment.made is None else experiment.made().traits
    asked = _ASKED if traits.plans or traits.computed else 1.0
    return len(experiment.workload) * asked * (run.load or 1.0)


def _labelled(outcome: Outcome, run: Run) -> Outcome:
    outcome.summary["seed"] = run.seed
    if run.load is not None:
        outcome.summary["load"] = run.load
    if run.varied:
        outcome.summary["varied"] = ", ".join(f"{key}={value}" for key, value in run.varied)
    return outcome
