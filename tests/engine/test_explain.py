"""Every answer to "why does this job not run", with its numbers; and asking changes nothing."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.reasons import Cause, Reason
from cotenant.engine.cycle import Engine
from cotenant.engine.explain import explain
from cotenant.engine.tables import build_state
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.sim import loop
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same, jobs, moments, random_workload

# Scratch of one walk may change; everything else is the engine's memory.
MEMORY = (
    "f", "i", "node", "host", "pool", "cls", "slices", "quota", "run", "hot", "heap", "members",
    "events", "tree", "attempts", "x", "t", "series", "segments",
)  # fmt: skip


def why(work, cluster: str, policy: str, row: int, at_s: float, placement: str = "count", quotas=None) -> Reason:
    spec = Cluster(Cluster.parse(cluster).groups, quotas or {}, cluster)
    run = Simulation(Experiment(work, spec, policy, placement=placement, costs="none"))
    run.advance(at_s)
    reason = explain(run.engine, run.work, spec, row, at_s)
    assert (reason.job, reason.at_s, reason.need_gpus) == (str(row), at_s, work.gpus[row])
    assert reason.as_dict()["cause"] == reason.cause
    return reason


def numbers(reason: Reason) -> tuple[Cause, int, int, int, int, tuple[str, ...]]:
    return reason.cause, reason.need_gpus, reason.free_gpus, reason.position, reason.waiting, reason.ahead


LINE = jobs((0, 6, 100), (1, 4, 50), (2, 2, 500), (3, 3, 10), (400, 1, 1))
"""On eight GPUs: row 0 runs with two idle; row 1 is the head; row 2 would fit but is long; row 3 does not fit."""


@pytest.mark.parametrize(
    ("row", "at_s", "cause", "text"),
    [
        (0, 10.0, Cause.RUNNING, "running since 0 s"),
        (0, 150.0, Cause.FINISHED, "finished at 100 s"),
        (4, 10.0, Cause.NOT_SUBMITTED, "submitted at 400 s"),
    ],
)
def test_jobs_that_do_not_wait(row: int, at_s: float, cause: Cause, text: str) -> None:
    reason = why(LINE, "1x8", "fifo", row, at_s)
    assert reason.cause == cause
    assert text in reason.text


def test_waiting_for_capacity() -> None:
    reason = why(LINE, "1x8", "fifo", 1, 10.0)
    assert numbers(reason) == (Cause.CAPACITY, 4, 2, 1, 3, ())
    assert "needs 4 GPUs and 2 are left" in reason.text
    assert "number 1 of 3" in reason.text


def test_held_back_behind_the_head() -> None:
    reason = why(LINE, "1x8", "fifo", 2, 10.0)
    assert numbers(reason) == (Cause.BEHIND_HEAD, 2, 2, 2, 3, ("1",))
    assert "behind '1'" in reason.text


def test_held_back_by_a_reservation() -> None:
    """At 100 s the head takes 4 of 8; until then row 2 may pass only if four stay free, and it does."""
    blocked = jobs((0, 6, 100), (1, 7, 50), (2, 2, 500), (3, 3, 10))
    reason = why(blocked, "1x8", "easy", 2, 10.0)
    assert numbers(reason) == (Cause.RESERVED, 2, 2, 2, 3, ("1",))
    assert "reservation of '1'" in reason.text
    assert why(blocked, "1x8", "easy", 1, 10.0).cause == Cause.CAPACITY


def test_position_follows_the_order_of_the_policy() -> None:
    assert numbers(why(LINE, "1x8", "sjf", 3, 10.0)) == (Cause.CAPACITY, 3, 0, 1, 2, ())
    # under srtf row 3 (10 s) and row 1 (50 s) run; row 0 (99 s of work left) waits before row 2 and has one GPU left
    reason = why(LINE, "1x8", "srtf", 0, 10.0)
    assert reason.cause == Cause.CAPACITY
    assert (reason.free_gpus, reason.position, reason.waiting) == (1, 1, 2)


def test_fragmented() -> None:
    work = jobs((0, 5, 10), (0, 4, 10_000), (0, 4, 20), (15, 4, 10_000), (100, 8, 50))
    reason = why(work, "2x8", "backfill", 4, 200.0, placement="consolidated")
    assert numbers(reason) == (Cause.FRAGMENTED, 8, 8, 1, 1, ())
    assert "not on few enough nodes" in reason.text


@pytest.mark.parametrize("policy", ["backfill", "srtf", "easy"])
def test_over_quota(policy: str) -> None:
    work = jobs((0, 2, 100), (0, 2, 300), tenants=["ada", "ada"])
    reason = why(work, "1x8", policy, 1, 10.0, quotas={"ada": 3})
    assert numbers(reason) == (Cause.OVER_QUOTA, 2, 6, 1, 1, ())
    assert "'ada' may hold 3 GPUs" in reason.text


def waiting_without_a_check(gpus: int) -> tuple[Engine, object, Cluster]:
    """One arrived job on eight GPUs, without the simulator's refusal of jobs that are too large."""
    work, cluster, policy = jobs((0, gpus, 10)), Cluster.parse("1x8"), make_policy("fifo")
    state = build_state(
        work,
        cluster,
        parse_placement("count"),
        belief_s=work.duration_s,
        restore_s=np.zeros(1),
        draw=np.zeros(1),
        speed=np.ones((1, 1, 2)),
        skew=np.full(1, np.nan),
    )
    rule = policy.rule(Context())
    loop.run(state, rule, np.zeros((0, 3)), inf, 0.0, 10)
    return Engine(state, policy, rule), work, cluster


def test_exceeds_the_cluster() -> None:
    engine, work, cluster = waiting_without_a_check(9)
    reason = explain(engine, work, cluster, 0, 0.0)
    assert (reason.cause, reason.need_gpus) == (Cause.EXCEEDS_CLUSTER, 9)
    assert "more than any pool of 1x8" in reason.text


def test_held() -> None:
    engine, work, cluster = waiting_without_a_check(4)
    engine.state.i[0, col.STATE] = col.HELD
    reason = explain(engine, work, cluster, 0, 0.0)
    assert (reason.cause, reason.need_gpus) == (Cause.HELD, 4)


def test_all_causes_are_covered_above() -> None:
    elsewhere = {"DEPENDENCY", "ASIDE", "ARRAY", "USER_LIMIT"} | {
        "NETWORK"
    }  # of the service; tests/sim/test_network_play.py
    assert {cause.name for cause in Cause} - elsewhere == {
        "RUNNING", "FINISHED", "NOT_SUBMITTED", "HELD", "EXCEEDS_CLUSTER", "OVER_QUOTA", "CAPACITY", "FRAGMENTED",
        "BEHIND_HEAD", "RESERVED",
    }  # fmt: skip


@pytest.mark.parametrize("policy", ["fifo", "easy", "sjf", "srtf", "srsf", "las", "tiresias-l", "tiresias-g"])
def test_asking_changes_nothing(policy: str) -> None:
    experiment = Experiment(
        random_workload(1, 25, 8), Cluster.parse("2x4"), policy, round_s=10.0, compiled=False, costs="2"
    )
    undisturbed = simulate(experiment)
    run = Simulation(experiment)
    asked = 0
    for time_s in moments(undisturbed)[::3]:
        run.advance(time_s)
        for row in np.flatnonzero(run.state.i[:, col.STATE] == col.WAITING).tolist()[:4]:
            before = {name: getattr(run.state, name).copy() for name in MEMORY}
            explain(run.engine, run.work, experiment.cluster, row, time_s)
            for name, copy in before.items():
                assert copy.tobytes() == getattr(run.state, name).tobytes(), name
            asked += 1
    assert asked > 20
    run.advance(inf)
    assert_same(run.outcome(), undisturbed)
