"""Idle GPUs that are given away between two rounds without asking go where the policy would have sent them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import effort
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import COLUMNS, Outcome
from cotenant.core.plan import Plan
from cotenant.core.spec import Spec
from cotenant.core.view import View
from cotenant.sim import unasked
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.generators import generate

POLICIES = ("gavel", "gavel:objective=ftf", "allox", "themis", "gavel:aware=false", "gavel:walk=global")
SETTINGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("3x8", "philly-like:jobs=150,load=1.1", {}),
    ("2x8:h200+2x4:a100+3x2:v100", "gavel-like:jobs=150,models=h200", {"profile": "h200"}),
    ("2x8:h200+4x2:v100", "philly-like:jobs=150,load=1.2,models=h200", {"profile": "h200", "round_s": 97.3}),
    ("4x4", "philly-like:jobs=150,load=0.9,tenants=3", {"placement": "spread"}),
)


def experiment(policy: str, cluster: str, workload: str, seed: int, **more: Any) -> Experiment:
    machines = Cluster.parse(cluster)
    work = generate(Spec.parse(f"{workload},seed={seed}"), machines.gpus)
    work = replace(work, duration_s=work.duration_s.clip(max=9_000.7))
    usual = {"compiled": False, "skip_infeasible": True, "check_invariants": True}
    return Experiment(work, machines, policy, **{**usual, **more})


def asked(e: Experiment) -> Outcome:
    """The same run with the policy asked whenever something happens."""
    run = Simulation(replace(e, notes=[]))
    assert not len(run.state.given)
    run.advance(e.until_s)
    return run.outcome()


def asks_of(e: Experiment) -> tuple[Simulation, list[float]]:
    """A run to its end, and when its policy was asked about anybody."""
    run = Simulation(replace(e, notes=[]), looked_at=False)
    times: list[float] = []
    decide = run.policy.decide  # type: ignore[attr-defined]

    def asked_at(view: View) -> Plan:
        times.append(view.now_s) if len(view.rows) else None
        return decide(view)  # type: ignore[no-any-return]

    run.policy.decide = asked_at  # type: ignore[attr-defined]
    run.advance(e.until_s)
    return run, times


def same(one: Outcome, other: Outcome) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    apart = ("wall_s", "peak_rss_mib")
    assert {k: v for k, v in one.summary.items() if k not in apart} == {
        k: v for k, v in other.summary.items() if k not in apart
    }


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("policy", effort.first(2, POLICIES))
def test_results_are_those_of_asking(policy: str, setting: int) -> None:
    cluster, workload, more = SETTINGS[setting]
    e = experiment(policy, cluster, workload, 1 + setting, **more)
    same(simulate(replace(e, notes=[])), asked(e))


@pytest.mark.parametrize("policy", ["gavel:objective=fifo,aware=false", "gavel:objective=fifo", "gavel"])
@pytest.mark.parametrize("compat", [("gavel",), ("gavel", "gavel:fifo.type_choice=stale"), ("gavel:costs=none",)])
def test_rounds_that_can_only_be_like_the_last_one_are_played_alike(policy: str, compat: tuple[str, ...]) -> None:
    cluster, workload, more = SETTINGS[1]
    e = experiment(policy, cluster, workload, 4, compat=compat, costs="none", **more)
    same(simulate(replace(e, notes=[])), asked(e))


def test_nobody_is_asked_for_rounds_like_the_last_one() -> None:
    e = experiment("gavel:objective=fifo", *SETTINGS[1][:2], 4, compat=("gavel",), costs="none", profile="h200")
    run, times = asks_of(e)
    assert len(times) < 0.7 * run.state.x[col.N_DECISIONS]


def test_the_policy_is_asked_when_there_is_no_room_to_write_down_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unasked, "ROWS", 3)
    e = experiment("gavel", *SETTINGS[0][:2], 5)
    same(simulate(replace(e, notes=[])), asked(e))


def test_a_policy_is_asked_once_in_a_round() -> None:
    e = experiment("gavel", *SETTINGS[0][:2], 1)
    _, times = asks_of(e)
    rounds = np.floor(np.array(times) / e.round_s + 1e-9)
    assert len(set(rounds.tolist())) == len(times)


@pytest.mark.parametrize(
    ("policy", "more"),
    [
        ("gavel:objective=las,sharing=true", {"profile": "h200"}),
        ("gavel", {"fail_nodes": "mtbf=86400,mttr=3600"}),
        ("srsf", {}),
    ],
)
def test_whoever_shares_or_fails_or_orders_is_asked_as_ever(policy: str, more: dict[str, Any]) -> None:
    e = experiment(policy, "2x4:h200", "philly-like:jobs=5,models=h200", 1, **more)
    assert not len(Simulation(e, looked_at=False).state.given)
