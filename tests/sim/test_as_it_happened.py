"""The row of the log itself, Slurm's rule, how well rules explain a log, and how many nodes a goal needs."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.analysis.calibration import explain_log, verdict
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Floats, Workload, make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.sim.planning import Goal, Look, search
from cotenant.workload.generators import generate


def jobs(*rows: tuple[float, int, float], **extra: list[float]) -> Workload:
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    more = {name: np.array(values) for name, values in extra.items() if name != "tenant"}
    tenant = Codes.of([str(name) for name in extra["tenant"]]) if "tenant" in extra else None
    return make_workload(
        "t", submit.astype(float), gpus.astype(np.int64), duration.astype(float), tenant=tenant, extra=more
    )


def starts(work: Workload, policy: str, cluster: str = "1x4") -> Floats:
    return simulate(Experiment(work, Cluster.parse(cluster), policy, costs="none", check_invariants=True)).first_start_s


def test_as_is_repeats_the_log() -> None:
    outcome = simulate(Experiment(jobs((0, 2, 100), (10, 4, 50), wait_s=[5, 95]), Cluster.parse("1x4"), "as-is"))
    assert outcome.first_start_s.tolist() == [5, 105]
    assert outcome.finish_s.tolist() == [105, 155]
    assert outcome.series.time_s.tolist() == [0, 5, 10, 105, 155]
    assert outcome.series.gpus_busy.tolist() == [0, 2, 2, 4, 0]
    assert outcome.series.jobs_waiting.tolist() == [1, 0, 1, 0, 0]
    assert outcome.summary["avg_queue_s"] == 50


def test_as_is_needs_starts() -> None:
    with pytest.raises(InputError, match="does not tell when jobs started"):
        simulate(Experiment(jobs((0, 2, 100)), Cluster.parse("1x4"), "as-is"))


def test_slurm_backfills_by_time_limits() -> None:
    """a has 3 of 4 GPUs until its limit, 200; b (4 GPUs) is reserved from then; c and d fit beside a now.

    c may take until 150 and begins; d may take until 300, which would delay b, and waits until b has run: a really ends
    at 100, so that b runs from 100 to 150.
    """
    work = jobs((0, 3, 100), (1, 4, 50), (2, 1, 40), (3, 1, 40), time_limit_s=[200, 50, 148, 297])
    assert starts(work, "slurm").tolist() == [0, 100, 2, 150]


def test_slurm_prefers_who_has_used_less() -> None:
    """Tenant x has used the cluster for 100 s; of two equal jobs that wait, y's comes first, though it came later."""
    work = jobs((0, 4, 100), (10, 4, 10), (20, 4, 10), tenant=["x", "x", "y"])  # type: ignore[list-item]
    assert starts(work, "slurm").tolist() == [0, 110, 100]
    assert starts(work, "slurm:fairshare=0").tolist() == [0, 100, 110]


def test_calibration_tells_who_explains_a_log() -> None:
    work = generate(Spec.parse("philly-like:jobs=150,seed=3,load=1.2"), 16, None)
    cluster = Cluster.parse("2x8")
    truth = simulate(Experiment(work, cluster, "easy"))
    work.extra["wait_s"] = truth.first_start_s - work.submit_s
    logged = simulate(Experiment(work, cluster, "as-is"))
    found = explain_log(logged, [simulate(Experiment(work, cluster, name)) for name in ("fifo", "easy")])
    assert [one.policy for one in found] == ["easy", "fifo"]
    assert found[0].close > 0.99 > found[1].close
    assert "'easy' explains the log best" in verdict(found)


@pytest.mark.parametrize(
    ("text", "metric", "sign", "limit"),
    [
        ("p95_queue<1h", "p95_queue", "<", 3600),
        ("avg_jct_s <= 90", "avg_jct", "<=", 90),
        ("utilization>70%", "utilization", ">", 0.7),
    ],
)
def test_goals(text: str, metric: str, sign: str, limit: float) -> None:
    assert (Goal.parse(text).metric, Goal.parse(text).sign, Goal.parse(text).limit) == (metric, sign, limit)


def test_plan_finds_what_exhaustive_search_finds_with_a_quarter_of_the_runs() -> None:
    work = generate(Spec.parse("philly-like:jobs=120,seed=5,load=6,max_gpus=8"), 32, None)
    goal = Goal.parse("p95_queue<1h")

    def look(nodes: float) -> Look:
        outcome = simulate(Experiment(work, Cluster.parse(f"{int(nodes)}x8"), "easy"))
        return Look(nodes, goal.value(outcome), goal.met(goal.value(outcome)))

    candidates = [float(nodes) for nodes in range(1, 33)]
    found, looks = search(candidates, look)
    exhaustive = next(nodes for nodes in candidates if look(nodes).met)
    assert found is not None
    assert 1 < found.tried == exhaustive < 32
    assert len(looks) <= len(candidates) / 4


def test_plan_says_when_nothing_will_do() -> None:
    found, looks = search([1.0, 2.0], lambda nodes: Look(nodes, 5.0, False))
    assert found is None
    assert len(looks) == 1
