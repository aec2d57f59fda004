"""Runs behind `python -m bench.gavel`: the authors' traces and rates, several processes, CPU seconds of each run."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cotenant.core import jit
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.solvers import price_kernels
from cotenant.workload.generators import GENERATORS, generate
from cotenant.workload.readers import read

CLUSTER = "36x1:v100+36x1:p100+36x1:k80"


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation: a trace of the authors or a generated workload, a policy, and how."""

    trace: str
    policy: str
    compat: tuple[str, ...] = ()
    seed: int = 0
    measure: tuple[int, int] | None = None
    costs: str = "none"
    round_s: float = 360.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave, in seconds."""

    jct_s: float
    p99_s: float
    makespan_s: float
    cpu_s: float
    rounds: int
    jct_of_weight: dict[float, float]


def data_folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("COTENANT_DATA") or default)
    if not (folder / "gavel").is_dir():
        sys.exit(f"bench.gavel: {folder / 'gavel'} is not a folder; COTENANT_DATA must name the folder above gavel/")
    return folder


def profile() -> str:
    return str(data_folder() / "gavel" / "simulation_throughputs.json.gz")


@lru_cache(maxsize=8)
def workload(trace: str) -> Workload:
    if trace.split(":")[0] in GENERATORS:
        return generate(Spec.parse(trace), 108, profile())
    return read(data_folder() / "gavel" / trace, profile=profile())


def play(run: Run) -> Result:
    """One run; CPU seconds are those of the simulation alone."""
    work = workload(run.trace)
    experiment = Experiment(
        work, Cluster.parse(CLUSTER), run.policy, profile=profile(), costs=run.costs, round_s=run.round_s,
        compat=run.compat, measure=run.measure, seed=run.seed, window_s=(0.0, 0.0), compiled=True,
    )  # fmt: skip
    began = time.process_time()
    outcome = simulate(experiment)
    cpu_s = time.process_time() - began
    summary, measured = outcome.summary, outcome.measured
    weight = np.asarray(work.extra["weight"], np.float64) if "weight" in work.extra else np.ones(len(work))
    by_weight = {
        float(w): float(np.nanmean(outcome.jct_s[measured & (weight == w)])) for w in np.unique(weight[measured])
    }
    jct, p99, makespan = (float(summary[name] or 0.0) for name in ("avg_jct_s", "p99_jct_s", "makespan_s"))
    return Result(jct, p99, makespan, cpu_s, int(summary["decisions"] or 0), by_weight)


def warm_up(policies: Sequence[str]) -> None:
    """Load or build every compiled loop before anything is timed, and before processes are forked."""
    jit.enable()
    price_kernels.responder(True)
    for policy in dict.fromkeys(policies):
        for compat in ((), ("gavel",)):
            play(Run("gavel-like:jobs=300,jobs_per_hour=60,multi=false,seed=9", policy, compat, measure=(0, 20)))


def play_all(runs: Sequence[Run], workers: int, state: Path | None = None) -> dict[Run, Result]:
    """Every run once, on several processes; one that is asked for twice, or stands in `state`, is not played again."""
    each = list(dict.fromkeys(runs))
    found = _recorded(state)
    left = sorted((run for run in each if run not in found), key=lambda run: run.seed)  # a first answer early
    for run in left:
        workload(run.trace)
    if workers <= 1 or len(left) <= 1:
        for run in left:
            found[run] = _noted(run, play(run), state)
    else:
        with multiprocessing.get_context("fork").Pool(min(workers, len(left))) as pool:
            for run, result in pool.imap_unordered(_both, left, chunksize=1):
                found[run] = _noted(run, result, state)
    return {run: found[run] for run in each}


def _both(run: Run) -> tuple[Run, Result]:
    return run, play(run)


def _noted(run: Run, result: Result, state: Path | None) -> Result:
    if state is not None:
        weights = list(result.jct_of_weight.items())
        line = {"run": asdict(run), "result": {**asdict(result), "jct_of_weight": weights}}
        with state.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return result


def _recorded(state: Path | None) -> dict[Run, Result]:
    """What an earlier call has played, by run."""
    found: dict[Run, Result] = {}
    for line in state.read_text(encoding="utf-8").splitlines() if state is not None and state.exists() else ():
        read_ = json.loads(line)
        run, result = read_["run"], read_["result"]
        run["compat"] = tuple(run["compat"])
        run["measure"] = None if run["measure"] is None else tuple(run["measure"])
        result["jct_of_weight"] = {float(weight): float(jct_s) for weight, jct_s in result["jct_of_weight"]}
        found[Run(**run)] = Result(**result)
    return found
