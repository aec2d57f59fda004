"""Job tables that follow what is active give what whole tables give, and hand results on as jobs end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import effort
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import COLUMNS, Outcome
from cotenant.core.spec import Spec
from cotenant.report import jobs_csv
from cotenant.sim import driver, following
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.sim.following import BLOCK, Following, may_follow
from cotenant.sim.sweep import scale_load
from cotenant.workload.generators import generate

ORDERS = ("srsf", "easy", "las", "fifo", "backfill", "sjf", "random", "srtf", "tiresias-l", "tiresias-g", "edf")
CLUSTER = Cluster.parse("4x8")


def experiment(policy: str, *, jobs: int = 2_000, load: float = 0.9, **more: Any) -> Experiment:
    """Small jobs of an hour at most, so that no block of rows stays to the end."""
    work = generate(Spec.parse(f"philly-like:jobs={jobs},seed=3"), CLUSTER.gpus)
    work = replace(work, duration_s=work.duration_s.clip(max=3600.0), gpus=work.gpus.clip(max=8))
    work = scale_load(work, CLUSTER.gpus, load)
    usual = {"compiled": False, "skip_infeasible": True}
    return Experiment(work, CLUSTER, policy, **{**usual, **more})


def whole(e: Experiment) -> Outcome:
    """The same run with tables that keep all rows."""
    run = Simulation(replace(e, notes=[]))
    run.advance(e.until_s)
    return run.outcome()


def same(one: Outcome, other: Outcome) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    apart = ("wall_s", "peak_rss_mib")
    assert {k: v for k, v in one.summary.items() if k not in apart} == {
        k: v for k, v in other.summary.items() if k not in apart
    }
    np.testing.assert_array_equal(one.series.time_s, other.series.time_s)
    np.testing.assert_array_equal(one.segments.job, other.segments.job)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks are looked for often, and what is given back turns into nonsense that nobody may read."""
    rows: list[int] = []

    def spoil(self: Following, row: int) -> None:
        rows.append(row)
        self.state.f[row : row + BLOCK], self.state.i[row : row + BLOCK] = np.nan, -7

    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    monkeypatch.setattr(Following, "forget", spoil)
    return rows


@pytest.mark.parametrize("policy", effort.first(2, ORDERS))
def test_rows_of_jobs_that_ended_are_never_read_again(policy: str, forgotten: list[int]) -> None:
    e = experiment(policy)
    same(simulate(e), whole(e))
    assert forgotten


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["count", "spread", "relaxed:after=600"])
@pytest.mark.parametrize("policy", ["srsf", "easy", "tiresias-g"])
def test_so_they_are_under_any_placement(policy: str, placement: str, forgotten: list[int]) -> None:
    e = experiment(policy, placement=placement, load=0.7)
    same(simulate(e), whole(e))
    assert forgotten


def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    e = experiment("sjf")
    run = Simulation(e, looked_at=False)
    run.advance(np.inf)
    assert not run.state.f[:BLOCK].any()  # rows that are no longer there read as zeros
    same(run.outcome(), whole(e))


def test_all_jobs_that_come_at_once_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    e = experiment("sjf", jobs=3 * BLOCK)
    submit_s = np.where(np.arange(3 * BLOCK) < 5, 0.0, 1e6)  # more of them than the loop is given events at a time
    e = replace(e, workload=replace(e.workload, submit_s=submit_s))
    monkeypatch.setattr(driver, "Stall", _Never)
    run = Simulation(e, looked_at=False)
    step = 100
    ahead = Following.ahead
    monkeypatch.setattr(Following, "ahead", lambda self, arrivals: ahead(self, step))
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()


class _Never:
    def __init__(self, state: object) -> None: ...

    def at(self) -> int:
        return -1


@pytest.mark.parametrize("until_s", [np.inf, 1e5, 0.0])
def test_ended_jobs_are_handed_on_once_and_in_order(until_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    monkeypatch.setattr(driver, "PART", 100)
    parts: list[Outcome] = []
    e = experiment("srsf", until_s=until_s)
    outcome = simulate(e, ended=parts.append)
    for name in COLUMNS:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(outcome, name), err_msg=name)
    assert [str(job) for part in parts for job in part.workload.job_id] == outcome.workload.job_id.tolist()


def test_some_are_handed_on_before_the_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    monkeypatch.setattr(driver, "PART", 100)
    left: list[int] = []  # jobs that had not ended when a part came
    run = Simulation(experiment("srsf"), looked_at=False, ended=lambda part: left.append(_left(run)))
    run.advance(np.inf)
    assert left
    assert max(left) > 0


def _left(run: Simulation) -> int:
    return len(run.work) - int(run.state.x[col.N_FINISHED])


@pytest.mark.parametrize("policy", ["muri-s", "gavel", "as-is"])
def test_policies_that_look_at_rows_hand_them_on_in_the_end(policy: str) -> None:
    parts: list[Outcome] = []
    e = experiment(policy, jobs=60)
    work = replace(e.workload, extra={"wait_s": np.ones(60)})
    outcome = simulate(replace(e, workload=work), ended=parts.append)
    np.testing.assert_array_equal(np.concatenate([part.finish_s for part in parts]), outcome.finish_s)


NOT_FOLLOWED: list[tuple[str, dict[str, Any]]] = [
    ("muri-s", {}),
    ("qssf", {"fail_nodes": "mtbf=1e6,mttr=60"}),
    ("srsf", {"check_invariants": True}),
    ("srsf", {"transitions": True}),
    ("srsf", {"defrag": True}),
]


@pytest.mark.parametrize(("policy", "more"), NOT_FOLLOWED)
def test_whoever_looks_at_other_rows_keeps_all(policy: str, more: dict[str, Any]) -> None:
    e = experiment(policy, jobs=20, load=0.9, **more)
    run = Simulation(e)
    assert not may_follow(e, run.traits, run.state)


def test_a_file_in_parts_has_the_bytes_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = experiment("srsf", jobs=700, until_s=3e4)
    outcome = simulate(e)
    jobs_csv.write_jobs_csv(outcome, tmp_path / "whole.csv")
    monkeypatch.setattr(jobs_csv, "_ROWS", 64)
    monkeypatch.setattr(following, "LOOK_EVERY", 50)
    monkeypatch.setattr(driver, "PART", 100)
    with jobs_csv.JobsCsv(tmp_path / "parts.csv") as file:
        add: Callable[[Outcome], None] = file.add
        simulate(e, ended=add)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert "not-started" in (tmp_path / "parts.csv").read_text()
