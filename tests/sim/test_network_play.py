"""Simulated gangs on a network that they share: ends worked out by hand, places, waiting, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.network import Network
from cotenant.core.outcome import Outcome
from cotenant.core.partitions import mig
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.explain import explain
from cotenant.engine.observe import places_of
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import random_workload
from cotenant.workload.cluster_file import cluster_text, load_cluster
from cotenant.workload.profiles.measured import default_batch, steps

ACROSS = """
groups:
  - {nodes: 1, gpus: 1, labels: {rack: a}}
  - {nodes: 1, gpus: 1, labels: {rack: b}}
  - {nodes: 1, gpus: 1, labels: {rack: a}}
  - {nodes: 1, gpus: 1, labels: {rack: b}}
  - {nodes: 1, gpus: 1, labels: {rack: a}}
  - {nodes: 1, gpus: 1, labels: {rack: b}}
network: {link: 8, uplink: 8, overlap: 0, gradient_mb: 100, step_s: 0.1}
"""
"""Links and uplinks of 1 GB/s; 100 MB take 0.1 s, as long as the rest of a step."""


def _jobs(submit_s: list[float], gpus: list[int], duration_s: list[float], **extra: list[float]) -> Workload:
    more = {name: np.array(values) for name, values in extra.items()}
    return make_workload("gangs", np.array(submit_s), np.array(gpus), np.array(duration_s), extra=more)


def _run(work: Workload, cluster: Cluster | str, policy: str = "fifo", **more: Any) -> Simulation:
    given = {"costs": "none", "check_invariants": True, "compiled": False, **more}
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    return Simulation(Experiment(work, spec, policy, **given))


def _play(work: Workload, cluster: Cluster | str, policy: str = "fifo", **more: Any) -> Outcome:
    run = _run(work, cluster, policy, **more)
    run.advance(np.inf)
    return run.outcome()


@pytest.fixture
def across(tmp_path: Path) -> Cluster:
    (tmp_path / "across.yaml").write_text(ACROSS, encoding="utf-8")
    return load_cluster(str(tmp_path / "across.yaml"))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy", "tiresias-l", "gavel", "antman"])
def test_three_gangs_that_cross_one_uplink(across: Cluster, policy: str) -> None:
    """Steps of 0.2, 0.3 and 0.4 s with one, two and three. 100, 200 and 300 s of work, from the same moment on.

    At 1/2 the first ends after 200 s; the others have 100 and 200 s left, at 2/3 the second ends 150 s later; the third
    has 100 s left and ends at 450 s.
    """
    found = _play(_jobs([0, 0, 0], [2, 2, 2], [100.0, 200.0, 300.0]), across, policy)
    assert found.finish_s == pytest.approx([200.0, 350.0, 450.0])
    assert found.summary["network_lost_gpu_h"] == pytest.approx(2 * (100 + 150 + 150) / 3600)


def test_two_gangs_that_share_the_link_of_a_node() -> None:
    """6 GPUs each on three nodes of 4: both have 2 on the same node. One comes 60 s later, when 40 s are left."""
    network = Network(8, overlap=0, gradient_mb=100, step_s=0.1)
    cluster = replace(Cluster.parse("3x4"), network=network)
    found = _play(_jobs([0, 60], [6, 6], [100.0, 100.0]), cluster)
    assert found.finish_s == pytest.approx([60 + 40 * 1.5, 120 + 60])
    light = _play(_jobs([0, 60], [6, 6], [100.0, 100.0], gradient_mb=[0.0, 100.0]), cluster)
    assert light.finish_s == pytest.approx([100.0, 160.0])  # who sends nothing takes nothing


def test_models_send_what_they_have() -> None:
    """VGG-16 has 138.4 million parameters of 4 bytes and takes a usual step; both of GPT-2 were measured."""
    cluster = replace(Cluster.parse("3x4"), network=Network(8, overlap=0, step_s=0.1))
    run = _run(replace(_jobs([0, 0], [6, 6], [1e3, 1e3]), model=Codes.of(["vgg16", "gpt2"])), cluster)
    run.advance(1.0)
    gpt2 = steps()["gpt2", default_batch("gpt2")]
    sends, computes = (0.5536, 4 * gpt2.parameters / 1e9), (0.1, max(gpt2.host_s, gpt2.gpu_s))
    wanted = [(c + m) / (c + 2 * m) for c, m in zip(computes, sends, strict=True)]
    assert run.state.f[:2, col.SPEED] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("policy", "most_gpus", "link"),
    [("fifo", 4, "1"), ("srtf", 4, "1"), ("easy", 4, "1"), ("gavel", 16, "1e9"), ("sjf-bsbf", 16, "1e9")],
)
def test_without_contention_all_is_as_without_a_network(policy: str, most_gpus: int, link: str) -> None:
    """Gangs of one node send nothing; and where links never fill up nobody is slowed."""
    work = random_workload(3, 30, most_gpus)
    plain, found = (_play(work, spec, policy, skip_infeasible=True) for spec in ("4x4", f"4x4/link={link}"))
    assert found.finish_s.tolist() == pytest.approx(plain.finish_s.tolist(), rel=1e-9)


def _places(run: Simulation) -> list[list[int]]:
    return [[node for node, _, _ in places_of(run.state, row)] for row in range(len(run.work))]


def test_a_gang_avoids_the_racks_that_it_need_not_cross() -> None:
    """Two racks of three nodes. Somebody has node 0, so that the next two are 1 and 2, and after those 3 and 4.

    A gang of two nodes goes to 1 and 2 in either case; one of three would begin there and cross.
    """
    work = _jobs([0, 1], [2, 6], [1e4, 100.0])
    spec = "6x2/link=25,rack=3,uplink=10"
    plain, avoids = _run(work, spec), _run(work, spec, network="avoid")
    for run in (plain, avoids):
        run.advance(2.0)
    assert (_places(plain)[1], _places(avoids)[1]) == ([1, 2, 3], [3, 4, 5])
    speeds = [run.state.f[1, col.SPEED] for run in (plain, avoids)]
    assert speeds[0] == pytest.approx(0.2956667 / 0.5516667)  # 533.3 MB take 0.1707 s, or 0.4267 s over 10 Gbit/s
    assert speeds[1] == 1.0
    for run in (plain, avoids):
        run.advance(np.inf)
    assert avoids.outcome().finish_s[1] == 101.0
    assert avoids.outcome().preemptions.sum() == avoids.outcome().restarts.sum() == 0
    assert avoids.outcome().summary["network_avoided"] == 1


HEAVY = {"gradient_mb": [400.0, 400.0], "step_s": [0.01, 0.01]}
"""Alone 0.133 s per step over 25 Gbit/s, 0.261 s with two on a link."""


@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy", "las", "gavel"])
def test_a_long_gang_waits_for_a_short_one(policy: str) -> None:
    """90 s are left of the first when 1,000 s come: at once they end at 186.6 and 1,096.6 s, else at 100 and 1,100."""
    work = _jobs([0, 10], [6, 6], [100.0, 1000.0], **HEAVY)
    at_once = _play(work, "3x4/link=25", policy)
    slow = 0.261 / 0.133
    assert at_once.finish_s == pytest.approx([10 + 90 * slow, 10 + 90 * slow + 910], rel=1e-6)
    waits = _play(work, "3x4/link=25", policy, network="wait")
    assert waits.finish_s == pytest.approx([100.0, 1100.0])
    assert (waits.queue_s[1], waits.summary["network_waits"]) == (pytest.approx(90.0), 1)


def test_a_short_gang_does_not_wait_for_a_long_one() -> None:
    work = _jobs([0, 10], [6, 6], [1000.0, 50.0], **HEAVY)
    found = _play(work, "3x4/link=25", network="wait")
    assert (found.first_start_s[1], found.summary["network_waits"]) == (10.0, 0)


def test_whoever_waits_for_the_network_keeps_nobody_waiting() -> None:
    """A job of 2 GPUs behind it starts at once under strict FIFO; with the place taken it then waits for GPUs."""
    work = _jobs([0, 10, 20], [6, 6, 4], [100.0, 1000.0, 50.0], gradient_mb=[400.0] * 3, step_s=[0.01] * 3)
    found = _play(work, "3x4/link=25", network="wait")
    assert found.first_start_s.tolist() == [0.0, 100.0, 20.0]


def test_why_names_the_network() -> None:
    work = _jobs([0, 10], [6, 6], [100.0, 1000.0], **HEAVY)
    cluster = Cluster.parse("3x4/link=25")
    waits = _run(work, cluster, network="wait")
    waits.advance(20.0)
    said = explain(waits.engine, waits.work, cluster, 1, 20.0)
    assert said.cause == "waiting for the network"
    assert said.text.startswith("it would share the link of node 1 with '0': if it starts after that, all whom")
    shares = _run(work, cluster)
    shares.advance(20.0)
    said = explain(shares.engine, shares.work, cluster, 1, 20.0)
    assert said.text.endswith("; it shares the link of node 1 with '0' and goes at 0.51 of its speed alone")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["fifo:strict=false", "srtf", "easy", "tiresias-l", "gavel"])
def test_whatever_comes_all_finish_and_no_limit_is_passed(seed: int, policy: str) -> None:
    """Invariants are checked after every event."""
    work = random_workload(seed, 25, 16)
    spec = "6x4/link=10,rack=3,uplink=10"
    found = _play(work, spec, policy, network="avoid,wait", skip_infeasible=True, costs="60")
    assert np.isfinite(found.finish_s).all()
    again = _play(work, spec, policy, network="avoid,wait", skip_infeasible=True, costs="60")
    assert found.finish_s.tolist() == again.finish_s.tolist()


@pytest.mark.parametrize(
    ("cluster", "policy", "more", "complaint"),
    [
        ("4x4", "fifo", {"network": "avoid"}, "has no network"),
        ("4x4/link=25", "fifo", {"network": "avoids"}, "did you mean 'avoid'"),
        ("4x4/link=25", "fifo", {"placement": "count"}, "knows no nodes"),
        ("4x4/link=25", "sjf-bsbf", {"network": "avoid"}, "says itself where jobs go"),
        ("4x4/link=25", "ones", {}, "resizes jobs"),
        ("4x4/link=25", "muri-s", {}, "by stages"),
        ("4x4/link=25", "tiresias-l", {"compat": ("tiresias",)}, "--compat tiresias"),
        ("4x4/link=25", "fifo", {"services": ("one",)}, "does not go with services"),
    ],
)
def test_what_does_not_go_together_is_refused(cluster: str, policy: str, more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        _run(_jobs([0], [4], [10.0]), cluster, policy, **more)


def test_slices_do_not_go_with_it() -> None:
    cluster = Cluster((NodeGroup(2, 2, "h200", slices=mig("h200")),), spec="cut", network=Network(25))
    with pytest.raises(InputError, match="cluster 'cut' does not go with GPUs in slices"):
        _run(_jobs([0], [1], [10.0]), cluster, "slices", profile="h200")


@pytest.mark.parametrize("spec", ["4x4/rack=2", "4x4/link=25,rack=1.5", "2x4/link=25+2x4/link=10", "4x4/link=0"])
def test_specs_that_make_no_sense_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="cluster spec"):
        Cluster.parse(spec)


def test_a_cluster_is_written_as_it_is_read(across: Cluster, tmp_path: Path) -> None:
    assert across.network == Network(8, 8, overlap=0, gradient_mb=100, step_s=0.1)
    again = tmp_path / "again.yaml"
    again.write_text(cluster_text(across), encoding="utf-8")
    assert load_cluster(str(again)).network == across.network
