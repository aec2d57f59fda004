"""In which order the runs of a sweep begin, and that results come as they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.sim import sweep
from cotenant.sim.driver import Experiment
from cotenant.sim.sweep import Run, plan_runs, run_each
from cotenant.sim.workers import in_processes
from cotenant.workload.generators import generate

CLUSTER = Cluster.parse("2x4")


def make(run: Run) -> Experiment:
    work = generate(Spec.parse(f"philly-like:jobs=12,load={run.load},seed={run.seed}"), CLUSTER.gpus)
    return Experiment(work, CLUSTER, run.policy, skip_infeasible=True, compiled=False)


def test_long_runs_begin_first_and_results_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def noted(run: Any, order: Sequence[int], *rest: Any) -> Iterator[tuple[int, Any]]:
        begun.extend(order)
        return in_processes(run, order, *rest)

    monkeypatch.setattr(sweep, "in_processes", noted)
    runs = plan_runs(["fifo", "muri-s"], [0], [0.5, 0.9])
    done = dict(run_each(runs, make, workers=2))
    # Of (fifo, 0.5), (muri-s, 0.5), (fifo, 0.9), (muri-s, 0.9): plans before orders, higher loads before lower ones.
    assert begun == [3, 1, 2, 0]
    assert [(done[at].policy, done[at].summary["load"]) for at in range(4)] == [(run.policy, run.load) for run in runs]


def test_a_result_larger_than_a_pipe_arrives_whole() -> None:
    size = 3 << 20
    assert [(at, len(text)) for at, text in in_processes(lambda at: "x" * size, [1, 0], 1)] == [(1, size), (0, size)]
