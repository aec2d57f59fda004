"""Idle nodes sleep and are woken in time, in virtual time: what the rules say, what is journaled, who waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import BackendError, NodeInfo, Sleeps
from cotenant.core.errors import InputError
from cotenant.service.power import LivePower

NODES = tuple(NodeInfo(f"n{at}", "gpu", 8, 8, 64.0) for at in range(6))
MIXED = (*NODES[:3], NodeInfo("x0", "h200", 8, 8, 64.0))
RULES = "ces:buffer=1,keep=1"


def power_rig(home: Path, nodes: tuple[NodeInfo, ...] = NODES, power: str = RULES) -> Rig:
    rig = Rig(home, "fifo", nodes, power=power)
    rig.backend.world.boot_s = 120.0
    return rig


def in_state(rig: Rig, *states: str) -> list[str]:
    return [node.name for node in rig.service.admin.nodes(ADMIN) if node.state in states]


def test_idle_nodes_sleep_but_for_those_in_use_and_one_more(tmp_path: Path) -> None:
    rig = power_rig(tmp_path)
    rig.submit("sleep 10000", gpus=8)
    rig.ticks(1200, step=60)
    assert len(in_state(rig, "asleep")) == 4
    assert rig.state("1") == "running"
    rig.check()


def test_a_job_that_needs_sleeping_nodes_is_taken_waits_for_the_boot_and_runs(tmp_path: Path) -> None:
    rig = power_rig(tmp_path)
    rig.ticks(1200, step=60)
    assert len(in_state(rig, "asleep")) == 5
    asked_s = rig.backend.now_s
    job = rig.submit("sleep 50", gpus=32)
    rig.ticks(2)
    waking = [node for node in rig.service.admin.nodes(ADMIN) if node.state == "waking"]
    assert len(waking) >= 3
    assert {node.ready_s - asked_s for node in waking} == {120.0}
    assert rig.state(job) == "pending"
    assert not rig.service.store.book.jobs[job].aside
    rig.finish()
    started_s = rig.service.desk.job(ADMIN, job).started_s or 0.0
    assert 120 <= started_s - asked_s <= 125
    woken = [name for at_s, name, state in rig.backend.world.power if at_s == asked_s and state == "waking"]
    assert len(woken) == len(waking)


def test_the_right_node_is_woken(tmp_path: Path) -> None:
    """A type that only a sleeping node has, while others of another type are awake and idle."""
    rig = power_rig(tmp_path, MIXED)
    rig.ticks(1200, step=60)
    assert "x0" in in_state(rig, "asleep")
    job = rig.submit("sleep 5", gpus="h200:1")
    rig.ticks(3)
    assert in_state(rig, "waking") == ["x0"]
    rig.finish()
    assert rig.state(job) == "succeeded"


@pytest.mark.parametrize("point", ["sleep.before", "sleep.after", "wake.before", "wake.after"])
def test_a_crash_in_between_leaves_no_node_forgotten(tmp_path: Path, point: str) -> None:
    rig = power_rig(tmp_path)

    def crash(at: str, key: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    rig.backend.hook = crash

    def sleep_and_wake() -> None:
        rig.ticks(700, step=60)
        rig.submit("sleep 50", gpus=48)
        rig.ticks(700, step=60)

    with pytest.raises(KeyboardInterrupt):
        sleep_and_wake()
    rig.restart()
    job = rig.submit("sleep 50", gpus=48)
    rig.finish()
    assert rig.state(job) == "succeeded"
    rig.ticks(1800, step=60)
    assert set(in_state(rig, "asleep")) == rig.service.store.book.asleep != set()


def test_without_power_all_wake_again(tmp_path: Path) -> None:
    rig = power_rig(tmp_path)
    rig.ticks(1200, step=60)
    rig.more["power"] = ""
    rig.restart()
    rig.ticks(300, step=10)
    assert in_state(rig, "up") == [node.name for node in NODES]


def test_nothing_sleeps_under_a_job_and_backends_say_what_they_cannot(tmp_path: Path) -> None:
    rig = power_rig(tmp_path, power="")
    rig.submit("sleep 100", gpus=8)
    rig.ticks(1)
    assert isinstance(rig.backend, Sleeps)
    with pytest.raises(BackendError, match="node n0 cannot sleep: job 1-1 lives there"):
        rig.backend.sleep_nodes(["n1", "n0"])
    assert in_state(rig, "asleep") == []
    with pytest.raises(InputError, match="cannot let nodes sleep"):
        LivePower(RULES, rig.service.store, object(), lambda: NODES)  # type: ignore[arg-type]
