"""Failing attempts of our own: parts of the duration, by class, and never in place of a log's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Status, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.failing import CLASSES, COLUMN, failure_figures, with_failures

ROWS = 4000
WORK = make_workload(
    "rows", np.arange(ROWS, dtype=float), np.tile([1, 2, 8, 16], ROWS // 4), np.full(ROWS, 1e6), attempts={0: (5.0,)}
)


def test_larger_jobs_fail_more_often_and_lasting_failures_end_them() -> None:
    found = with_failures(WORK, "attempts=3", 0)
    code = found.extra[COLUMN]
    assert found.attempts[0] == (5.0,)
    assert code[0] == 0
    rates = [float(np.mean(code[WORK.gpus == gpus] > 0)) for gpus in (1, 2, 8, 16)]
    assert rates == pytest.approx([0.10, 0.15, 0.25, 0.30], abs=0.03)
    assert sum(one.part for one in CLASSES) == pytest.approx(1.0)
    for row in np.flatnonzero(code).tolist():
        lasts = CLASSES[code[row] - 1].comes_back
        assert len(found.attempts[row]) == (2 if lasts else 1)
        assert (found.status[row] == Status.FAILED) == lasts
    figures = failure_figures(found)
    assert figures["failed_attempts_of_the_log"] == 1
    assert sum(v for k, v in figures.items() if k.startswith("failed_attempts")) == sum(
        map(len, found.attempts.values())
    )
    assert (
        with_failures(WORK, "attempts=3", 0).attempts == found.attempts != with_failures(WORK, "attempts=3", 1).attempts
    )


def test_a_run_tries_again_and_counts_by_class() -> None:
    short = replace(WORK, attempts={}, duration_s=np.full(ROWS, 2000.0)).take(np.arange(40))
    work = with_failures(short, "attempts=2", 3)
    result = simulate(Experiment(work, Cluster.parse("8x8"), "philly", skip_infeasible=True, compiled=False))
    assert result.restarts.sum() == sum(map(len, work.attempts.values())) > 0
    assert result.summary["failed_attempts_setup"] == sum(work.extra[COLUMN] == 1)
    assert result.summary["ended_failed"] == int((work.status == Status.FAILED).sum())


def test_bad_options_are_one_line() -> None:
    with pytest.raises(InputError, match=r"attempts=0 must be 1 or more"):
        with_failures(WORK, "attempts=0", 0)
