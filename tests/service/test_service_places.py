"""What a live job may ask of the order and of its place: priority, GPU type, number of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, EPOCH_S, Rig

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError

MIXED = (NodeInfo("a0", "a100", 2, 8, 64.0), NodeInfo("h0", "h200", 2, 8, 64.0), NodeInfo("h1", "h200", 2, 8, 64.0))


def held(rig: Rig, job: str) -> dict[str, int]:
    return {node: len(indexes) for node, indexes in rig.service.store.book.jobs[job].last.gpus}


@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "sjf"])
def test_priority_goes_to_the_front_of_the_line(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy)
    rig.submit("sleep 10", gpus=4)
    rig.ticks(1)
    low, high = rig.submit(gpus=4, priority=-1, expected=9), rig.submit(gpus=4, expected=9)
    urgent = rig.submit("sleep 50", gpus=4, expected=90_000)
    rig.ticks(1)
    assert rig.service.desk.why(ADMIN, urgent)["position"] == 2
    rig.service.desk.set(ADMIN, urgent, {"priority": 5})
    rig.service.tick()
    why = rig.service.desk.why(ADMIN, low)
    assert (why["position"], why["ahead"]) == (3, (urgent, high))
    finish = {row["id"]: row[policy] for row in rig.service.desk.whatif(ADMIN, [])["jobs"]}
    assert finish[urgent] < finish[high] < finish[low]
    rig.finish()
    ended = {job: rig.service.desk.job(ADMIN, job).ended_s for job in (urgent, high, low)}
    assert sorted(ended, key=ended.__getitem__) == [urgent, high, low]


@pytest.mark.parametrize("policy", ["srtf", "tiresias-l", "las"])
def test_priority_displaces_only_lower_tiers(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy)
    calm, high = (
        rig.submit("sleep 100", gpus=2, expected=100),
        rig.submit("sleep 100", gpus=2, priority=2, expected=100),
    )
    rig.ticks(2)
    urgent = rig.submit("sleep 500", gpus=2, priority=1, expected=500)
    rig.ticks(20)
    assert (rig.state(urgent), rig.state(high)) == ("running", "running")
    assert rig.state(calm) in ("pending", "suspended", "stopping")
    rig.finish()
    assert rig.service.desk.job(ADMIN, calm).ended_s > rig.service.desk.job(ADMIN, high).ended_s


def test_a_job_runs_on_the_type_it_names(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "backfill", nodes=MIXED)
    jobs = [rig.submit("sleep 30", gpus="h200:2") for _ in range(3)]
    anywhere = rig.submit("sleep 30", gpus=1)
    rig.ticks(2)
    assert [rig.state(job) for job in (*jobs, anywhere)] == ["running", "running", "pending", "running"]
    assert [held(rig, job) for job in (*jobs[:2], anywhere)] == [{"h0": 2}, {"h1": 2}, {"a0": 1}]
    assert rig.service.desk.why(ADMIN, jobs[2])["cause"] in ("waiting for capacity", "fragmented")
    rig.finish()
    assert held(rig, jobs[2]).keys() <= {"h0", "h1"}


def test_equal_parts_on_so_many_nodes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", nodes=MIXED)
    both = rig.submit("sleep 30", gpus=2, nodes=2)
    rig.ticks(2)
    assert held(rig, both) == {"h0": 1, "h1": 1}
    one = rig.submit("sleep 30", gpus=2, nodes=1)
    rig.ticks(2)
    assert held(rig, one) == {"a0": 2}
    rig.finish()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpus": "h100:1"}, r"^job 'job': field 'gpus' asks for type 'h100'; there is a100, h200$"),
        ({"gpus": "h200:5"}, r"^job 'job': field 'gpus' is 5; the largest pool has 4 of type 'h200'$"),
        ({"gpus": 5}, r"^job 'job': field 'gpus' is 5; the largest pool has 4$"),
        ({"gpus": 0}, r"^job 'job': field 'gpus' is 0: every job takes at least 1 GPU$"),
        ({"cpus": 9}, r"^job 'job': field 'cpus' is 9 cores; 1 GPUs come with at most 8$"),
        ({"gpus": 4, "cpus": 17}, r"^job 'job': field 'cpus' is 17 cores; 4 GPUs come with at most 16$"),
        ({"mem": "1000G"}, r"^job 'job': field 'mem' is 1000 GiB; 1 GPUs come with at most 64$"),
        ({"gpus": 4, "nodes": 3}, r"^job 'job': field 'nodes' is 3, but 4 GPUs do not divide by it$"),
        ({"gpus": 4, "nodes": 1}, r"^job 'job': field 'nodes' is 1, with 4 GPUs each; there are 0 such nodes$"),
        ({"gpus": 3, "nodes": 3}, r"^job 'job': field 'nodes' is 3, with 1 GPUs each; there are 2 such nodes$"),
        ({"gpus": "a100:2", "nodes": 2}, r"'nodes' is 2, with 1 GPUs of type 'a100' each; there is 1 such node$"),
    ],
)
def test_what_can_never_start_is_refused_with_one_line(tmp_path: Path, fields: dict, message: str) -> None:
    rig = Rig(tmp_path, "fifo", nodes=MIXED)
    with pytest.raises(InputError, match=message) as refused:
        rig.submit(**fields)
    assert "\n" not in str(refused.value)
    assert not rig.service.store.book.jobs


def test_backfill_never_delays_the_first_in_line(tmp_path: Path) -> None:
    """EASY: whoever would end before the reservation goes ahead, whoever would not waits and is told so."""
    rig = Rig(tmp_path, "easy")
    rig.submit("sleep 100", gpus=3, expected=100)
    rig.ticks(1)
    head = rig.submit("sleep 50", gpus=4, expected=50)
    short, long = rig.submit("sleep 20", gpus=1, expected=20), rig.submit("sleep 500", gpus=1, expected=500)
    rig.ticks(1)
    assert [rig.state(job) for job in (head, short, long)] == ["pending", "running", "pending"]
    rig.ticks(25)
    why = rig.service.desk.why(ADMIN, long)
    assert (why["cause"], why["ahead"]) == ("held back by a reservation", (head,))
    rig.finish()
    began = {job: rig.service.desk.job(ADMIN, job).started_s for job in (head, long)}
    assert began[head] == pytest.approx(EPOCH_S + 100, abs=3)
    assert began[long] >= began[head]


@pytest.mark.parametrize("policy", ["srtf", "las", "gavel", "tiresias-l"])
def test_a_job_that_may_not_be_stopped_is_not(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy, nodes=MIXED, round_s=5.0, budget_s=60.0)
    fixed = rig.submit("sleep 60", gpus="h200:4", preemptible=False, expected=60)
    rig.ticks(2)
    others = [rig.submit("sleep 5", gpus="h200:2", expected=5) for _ in range(2)]
    rig.ticks(5)
    assert [rig.state(job) for job in others] == ["pending"] * 2
    rig.restart()
    rig.finish()
    ended = rig.service.desk.job(ADMIN, fixed).ended_s
    assert ended == pytest.approx(EPOCH_S + 60, abs=3)
    assert all(rig.service.desk.job(ADMIN, job).started_s >= ended for job in others)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "gavel"])
def test_drained_nodes_take_nobody_in_and_let_everybody_end(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy, nodes=MIXED, round_s=5.0, budget_s=60.0)
    here = rig.submit("sleep 30", gpus="a100:2", expected=30)
    rig.ticks(2)
    rig.service.admin.drain(ADMIN, "a0")
    jobs = [rig.submit("sleep 20", gpus=2, expected=10) for _ in range(3)]
    only = rig.submit("sleep 5", gpus="a100:1", expected=5)
    rig.ticks(10)
    assert (rig.state(here), rig.state(only)) == ("running", "pending")
    assert all(held(rig, job).keys() <= {"h0", "h1"} for job in jobs if rig.attempts(job) != [0])
    rig.ticks(80)
    assert [rig.state(job) for job in (here, *jobs, only)] == ["succeeded"] * 4 + ["pending"]
    assert rig.attempts(here) == [1]
    rig.service.admin.drain(ADMIN, "a0", undo=True)
    rig.finish()
    assert held(rig, only) == {"a0": 1}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "easy"])
def test_another_size_and_priority_of_a_job_that_waits(tmp_path: Path, policy: str) -> None:
    rig = Rig(tmp_path, policy)
    rig.submit("sleep 20", gpus=3, expected=20)
    rig.ticks(1)
    job = rig.submit("sleep 20", gpus=4, elastic={"min_gpus": 1, "max_gpus": 4}, expected=20)
    rig.ticks(1)
    assert rig.state(job) == "pending"
    rig.service.desk.set(ADMIN, job, {"gpus": 1, "priority": 3})
    rig.ticks(1)
    assert rig.state(job) == "running"
    assert held(rig, job) == {"n0": 1}
    rig.finish()


def test_backfill_finds_a_job_once_whose_priority_was_changed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "easy")
    rig.submit("sleep 20", gpus=3, expected=20)
    rig.ticks(1)
    rig.submit("sleep 5", gpus=4, expected=5)
    jobs = [rig.submit("sleep 30", gpus=2, expected=30) for _ in range(3)]
    rig.ticks(1)
    for job in jobs:
        rig.service.desk.set(ADMIN, job, {"priority": 0 if job == jobs[0] else -1})
    rig.ticks(1)
    rig.finish()
    assert rig.attempts(*jobs) == [1, 1, 1]


def test_placement_by_skew_lets_others_lie_anywhere(tmp_path: Path) -> None:
    """Two nodes with two free GPUs each: a gang of a skewed model waits for one node, another takes what there is."""
    two = tuple(NodeInfo(f"n{k}", "gpu", 4, 8, 64.0) for k in range(2))
    for placement, state in (("skew:limit=0.4", "running"), ("consolidated", "pending")):
        rig = Rig(tmp_path / placement[:4], "backfill", nodes=two, placement=placement)
        for _ in range(2):
            rig.submit("sleep 100", gpus=3)
        rig.ticks(1)
        skewed, even = rig.submit("sleep 10", gpus=2, model="vgg16"), rig.submit("sleep 10", gpus=2, model="resnet50")
        rig.ticks(2)
        assert (rig.state(skewed), rig.state(even)) == ("pending", state)
        if state == "running":
            assert held(rig, even) == {"n0": 1, "n1": 1}


def test_services_of_ended_jobs_become_samples(tmp_path: Path) -> None:
    """Tiresias-G ranks by what jobs took that have ended since it began."""
    rig = Rig(tmp_path, "tiresias-g")
    rig.submit("sleep 20", gpus=2)
    rig.submit("sleep 300", gpus=1)
    rig.ticks(1)
    live = rig.service.planner.live
    assert live is not None
    assert live.engine.rule.samples.tolist() == [3600.0]
    rig.ticks(90)
    assert live.engine.rule.samples.tolist() == pytest.approx([40.0], abs=6.0)
