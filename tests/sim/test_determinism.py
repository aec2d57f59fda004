"""Same seed, same bytes: compiled or not, whatever the hash seed, however many workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from digest_runs import POLICIES, SETTINGS, TEXTBOOK, digests

import effort
from cotenant.core.cluster import Cluster
from cotenant.sim.driver import Experiment, simulate
from cotenant.sim.sweep import Run, plan_runs, run_all
from cotenant.testing.policy import assert_same, random_workload

JOBS = 150


def in_another_process(
    mode: str, hash_seed: str, jobs: int = JOBS, policies: tuple[str, ...] = POLICIES
) -> dict[str, str]:
    program = Path(__file__).with_name("digest_runs.py")
    done = subprocess.run(
        [sys.executable, str(program), mode, str(jobs), *policies],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)["digests"]


@pytest.mark.slow
def test_compiled_kernels_give_the_same_bytes() -> None:
    """In a process of its own, and so with another hash seed too."""
    plain = digests(False, JOBS)
    assert in_another_process("compiled", "1") == plain
    # The comparison means something: most of the runs differ. The textbook's srsf and its NumPy twin do not; tiresias-l
    # is backfill while nobody reaches its first threshold; and policies that share GPUs, or look at deadlines, models
    # or GPU types, fall back on each other's schedules where there are none.
    assert len(plain) == len(POLICIES) * len(SETTINGS)
    assert len(set(plain.values())) >= 0.6 * len(plain)
    for name in SETTINGS:
        assert plain[f"{TEXTBOOK} {name}"] == plain[f"numpy_twins.py:Srsf {name}"]


def test_the_hash_seed_changes_nothing() -> None:
    """Every policy is played with two of them above; here one of each kind."""
    kinds = tuple(sorted(effort.POLICIES))
    assert in_another_process("plain", "2", 60, kinds) == in_another_process("plain", "77", 60, kinds)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers: int) -> None:
    work, cluster = random_workload(4, 40, 8), Cluster.parse("4x4")
    runs = plan_runs(["fifo", "srsf", "random"], [0, 1], [None])

    def make(run: Run) -> Experiment:
        return Experiment(work, cluster, run.policy, seed=run.seed, compiled=False)

    outcomes = list(run_all(runs, make, workers))
    assert [(o.policy, o.summary["seed"]) for o in outcomes] == [(run.policy, run.seed) for run in runs]
    for run, outcome in zip(runs, outcomes, strict=True):
        assert_same(outcome, simulate(make(run)))
        assert len(outcome.workload) == len(work)


def test_the_seed_matters_where_chance_does() -> None:
    work, cluster = random_workload(4, 40, 8), Cluster.parse("2x4")
    chance = [simulate(Experiment(work, cluster, "random", seed=seed)).finish_s.tobytes() for seed in (0, 1)]
    assert chance[0] != chance[1]
    order = [simulate(Experiment(work, cluster, "srsf", seed=seed)).finish_s.tobytes() for seed in (0, 1)]
    assert order[0] == order[1]
