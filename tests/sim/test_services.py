"""Inference services beside training: the latency guard, leaving when requests rise, scaling, and the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.cli.setup import Setup
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.serving import InferenceService
from cotenant.core.workload import Workload
from cotenant.engine.explain import explain
from cotenant.sim.driver import Experiment, Simulation
from cotenant.sim.requests import Stay, serve
from cotenant.testing.policy import jobs
from cotenant.workload.cluster_file import load_cluster
from cotenant.workload.services import load_services, services_of

HOUR_S = 3600.0


def service(**said: Any) -> tuple[InferenceService, ...]:
    """One service `chat`: 200 ms a request, 1 s allowed."""
    usual = {"target_ms": 1000, "service_ms": 200, "rate": 0.6, "beside": {"*": [0.6, 0.5]}}
    return services_of({"chat": usual | said}, "test", Path())


def begin(
    work: Workload, services: tuple[InferenceService, ...], policy: str = "sjf-bsbf", cluster: str = "1x1"
) -> Simulation:
    """A run that has not begun."""
    options: dict[str, Any] = {"costs": "none", "check_invariants": True, "compiled": False}
    return Simulation(Experiment(work, Cluster.parse(cluster), policy, services=services, **options))


def test_training_joins_only_while_the_target_holds_and_the_reason_names_it() -> None:
    """At 0.6 requests/s the p99 beside it is 0.80 s; at 2 it would be 2.2 s, and the job waits for that very reason."""
    for rate, joins in ((0.6, True), (2.0, False)):
        run = begin(jobs((0, 1, 1000)), service(rate=rate))
        run.advance(60.0)
        reason = explain(run.engine, run.work, run.experiment.cluster, 0, 60.0).text
        assert (run.state.x[col.N_RUNNING] == 1) == joins
        assert ("running since" in reason) == joins
        assert ("over its target of 1000 ms" in reason) != joins


def test_training_beside_a_service_is_slowed_while_requests_are_worked_on() -> None:
    """Busy for 0.6 x 0.2 / 0.6 = a fifth of the time, and half as fast then: 1000 s take 1000 / 0.9 = 1111."""
    run = begin(jobs((0, 1, 1000)), service())
    assert run.advance(np.inf)
    assert run.outcome().finish_s[0] == pytest.approx(1111, abs=4)  # less busy up to the first look


def test_training_leaves_when_requests_rise_and_comes_back() -> None:
    """Around 3 o'clock there are too many: it is stopped before, waits, and goes on afterwards."""
    curve = {0: 0.6, 2: 0.6, 3: 2.5, 4: 0.6}
    run = begin(jobs((0, 1, 3 * HOUR_S)), service(rate=curve))
    run.advance(3 * HOUR_S)
    assert run.state.x[col.N_RUNNING] == 0
    assert run.advance(np.inf)
    found = run.outcome()
    assert found.preemptions[0] == 1
    assert found.summary["left_services"] == 1
    assert 4 * HOUR_S < found.finish_s[0] < 6 * HOUR_S
    assert float(str(found.summary["service_chat_within_target"])) >= 0.99


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs", "antman", "gandiva", "horus", "muri-s"])
def test_every_policy_that_shares_is_guarded(policy: str) -> None:
    """Replicas that scale, jobs that are too many: some training is done beside, and requests are in time."""
    draw = np.random.default_rng(5)
    sizes = draw.choice([1, 1, 2], 12), draw.integers(600, 6000, 12)
    work = jobs(*((900 * at, int(gpus), int(took)) for at, (gpus, took) in enumerate(zip(*sizes, strict=True))))
    run = begin(work, service(rate={0: 0.6, 1: 0.6, 2: 4, 3: 0.6}, replicas=[1, 2]), policy, "1x3")
    assert run.advance(np.inf)
    summary = run.outcome().summary
    assert summary["finished"] == len(work)
    assert float(str(summary["service_chat_within_target"])) >= 0.99
    assert float(str(summary["beside_services_gpu_hours"])) > 0.2


@pytest.mark.parametrize("policy", ["srtf", "chronus"])
def test_who_does_not_share_keeps_out_of_the_gpus_of_services(policy: str) -> None:
    """Orders and plans have what replicas leave; a replica that comes later has its GPU for itself, too."""
    run = begin(jobs((0, 1, 1000), (0, 1, 1000)), service(), policy, "1x2")
    assert run.advance(np.inf)
    assert sorted(run.outcome().finish_s) == [1000, 2000]
    run = begin(jobs((0, 1, 2 * HOUR_S)), service(rate={0: 1, 1: 3, 23: 1}, replicas=[1, 2]), policy, "1x2")
    run.advance(HOUR_S)
    assert run.outcome().preemptions[0] == 1


def test_replicas_follow_the_rate_after_their_start() -> None:
    """3 requests/s are too many for one replica; the second is asked for ahead of time and answers in time."""
    run = begin(jobs((0, 1, 2 * HOUR_S)), service(rate={0: 1, 1: 3, 23: 1}, replicas=[1, 2]), cluster="1x3")
    run.advance(600.0)
    assert run.serving is not None
    assert len(run.serving.replicas.all) == 1
    run.advance(HOUR_S)
    assert len(run.serving.replicas.all) == 2
    assert run.advance(np.inf)
    assert float(str(run.outcome().summary["service_chat_within_target"])) >= 0.99


def test_requests_are_late_where_nobody_guards() -> None:
    """The truth is not the prediction: beside training that should not be there half of the requests are late."""
    (one,) = service(rate=2.8)
    alone, beside = Stay(0.0), Stay(0.0)
    beside.note(1 / 0.6, 0.0)
    assert serve(one, [alone], 0.0, HOUR_S, seed=1).share > 0.9
    assert serve(one, [beside], 0.0, HOUR_S, seed=1).share < 0.6
    assert serve(one, [], 0.0, HOUR_S, seed=1).share == 0


def test_a_trace_of_requests_is_played_as_it_is(tmp_path: Path) -> None:
    """Its arrivals, one by one; the service knows only what it has counted."""
    (tmp_path / "arrivals.csv").write_text("\n".join(str(second) for second in range(0, 900, 3)))
    (tmp_path / "services.yaml").write_text("chat: {target_ms: 1000, service_ms: 200, requests: arrivals.csv}\n")
    run = begin(jobs((0, 1, 600)), load_services(str(tmp_path / "services.yaml")))
    assert run.advance(np.inf)
    summary = run.outcome().summary
    assert summary["service_chat_requests"] in range(200, 301)
    assert summary["service_chat_within_target"] == 1.0


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"target_ms": 100}, "target_ms"),
        ({"replicas": [3, 1]}, "replicas"),
        ({"interleaving": 2}, "1.3 to 1.7"),
        ({"beside": {"bert": 1.2}}, "beside.bert"),
        ({"rate": {25: 1}}, "no hour"),
        ({"requests": "nowhere.csv"}, "either rate or requests"),
        ({"latency": 5}, "latency"),
    ],
)
def test_what_is_wrong_with_a_service_is_said_in_one_line(said: dict[str, Any], complaint: str) -> None:
    """The file, the field and the fix."""
    with pytest.raises(InputError, match=complaint) as error:
        service(**said)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("test: chat")


def test_services_come_from_a_file_or_with_the_cluster(tmp_path: Path) -> None:
    """`--services FILE`, and `services:` of a cluster file, are the same to a run."""
    text = "chat: {target_ms: 1000, service_ms: 200, rate: 0.6}\n"
    (tmp_path / "services.yaml").write_text(text)
    (tmp_path / "cluster.yaml").write_text(f"groups: [{{nodes: 1, gpus: 1}}]\nservices:\n  {text}")
    by_option = Setup(services=str(tmp_path / "services.yaml")).experiment(
        jobs((0, 1, 9)), Cluster.parse("1x1"), "fifo"
    )
    by_cluster = Setup().experiment(jobs((0, 1, 9)), load_cluster(str(tmp_path / "cluster.yaml")), "fifo")
    for found in (by_option, by_cluster):
        assert [(one.name, one.target_s, one.rate.at(0.0)) for one in found.services] == [("chat", 1.0, 0.6)]
