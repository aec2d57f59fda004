"""Many runs side by side: policies times seeds times loads, on several processes, always in the same order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cotenant.core import jit
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Workload
from cotenant.sim.driver import Experiment, is_large, simulate
from cotenant.sim.ray_sweep import play_on_ray


@dataclass(frozen=True, slots=True)
class Run:
    """One cell of a sweep."""

    policy: str
    seed: int
    load: float | None


MakeExperiment = Callable[[Run], Experiment]


def plan_runs(policies: Sequence[str], seeds: Sequence[int], loads: Sequence[float | None]) -> list[Run]:
    """All cells: loads outside, then policies, then seeds."""
    return [Run(policy, seed, load) for load in loads for policy in policies for seed in seeds]


def run_all(runs: Sequence[Run], make: MakeExperiment, workers: int, ray: str | None = None) -> Iterator[Outcome]:
    """Outcomes in the order of `runs`. Workers are forked, so that workloads and kernels are shared.

    `ray`: the address of a Ray cluster, '' for the usual one, whose cores do the work instead.
    """
    experiments = [make(run) for run in runs]
    if any(is_large(e.workload, e.cluster) for e in experiments):
        jit.enable()
    if ray is not None:
        for run, outcome in zip(runs, play_on_ray(experiments, ray), strict=True):
            yield _labelled(outcome, run)
        return
    if workers <= 1 or len(runs) == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for run, experiment in zip(runs, experiments, strict=True):
            yield _labelled(simulate(experiment), run)
        return
    global _shared
    _shared = experiments
    if jit.enabled():
        _load_kernels()
    with multiprocessing.get_context("fork").Pool(min(workers, len(runs))) as pool:
        for run, experiment, (outcome, notes) in zip(
            runs, experiments, pool.imap(_run_shared, range(len(runs))), strict=True
        ):
            experiment.notes.extend(notes)
            full = outcome if len(outcome.workload) else replace(outcome, workload=experiment.workload)
            yield _labelled(full, run)


def default_workers() -> int:
    """One process per core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scale_load(work: Workload, cluster_gpus: int, load: float) -> Workload:
    """The same jobs, arriving faster or slower so that the offered load is as asked."""
    factor = work.load(cluster_gpus) / load
    first = work.submit_s[0]
    return replace(work, submit_s=first + (work.submit_s - first) * factor)


_shared: list[Experiment] = []


def _run_shared(at: int) -> tuple[Outcome, list[str]]:
    """Run one experiment in a worker. The workload does not travel back unless jobs were left out."""
    experiment = _shared[at]
    outcome = simulate(experiment)
    if outcome.workload is experiment.workload:
        outcome = replace(outcome, workload=outcome.workload.take(np.zeros(0, np.int64)))
    return outcome, experiment.notes


def _load_kernels() -> None:
    """Load compiled code before forking, so that it is loaded once."""
    from cotenant.sim.warm import warm

    warm()


def _labelled(outcome: Outcome, run: Run) -> Outcome:
    outcome.summary["seed"] = run.seed
    if run.load is not None:
        outcome.summary["load"] = run.load
    return outcome
