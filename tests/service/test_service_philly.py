"""Philly on a live service: who waits is told its attempts, and a crash does not begin them anew."""

from __future__ import annotations

from pathlib import Path

from service_kit import ADMIN, EPOCH_S, Rig, play

from cotenant.backends.base import NodeInfo

NODES = tuple(NodeInfo(f"n{k}", "gpu", 8, 64, 512.0) for k in range(2))


def test_attempts_go_on_after_a_crash(tmp_path: Path) -> None:
    """4 GPUs of each node are busy; a job of 8 wants one node, and has both 4 * 270 s after its first attempt."""
    rig = Rig(tmp_path, "philly", NODES)
    rig.submit("sleep 3600", gpus=8, nodes=2)
    play(rig, 1.0)
    job = rig.submit("sleep 10", gpus=8)
    play(rig, 450.0)
    before = rig.service.desk.why(ADMIN, job)["text"]
    assert "waits for locality" in before
    assert "attempt 2 of 4 timed out, next at" in before
    rig.restart()
    play(rig, 0.1)
    assert rig.service.desk.why(ADMIN, job)["text"] == before
    play(rig, 300.0)
    assert "attempt 3 of 4" in rig.service.desk.why(ADMIN, job)["text"]
    play(rig, 340.0)
    (attempt,) = rig.service.desk.job(ADMIN, job).attempts
    assert attempt.started_s is not None
    assert 1080.0 <= attempt.started_s - EPOCH_S <= 1083.0


def test_what_is_held_is_held_after_a_crash(tmp_path: Path) -> None:
    """A job of 4 GPUs finds none while two gangs hold 4 each, before a crash and after it."""
    rig = Rig(tmp_path, "philly", NODES)
    rig.submit("sleep 3600", gpus=8, nodes=2)
    play(rig, 1.0)
    gangs = [rig.submit("sleep 10", gpus=8) for _ in range(2)]
    play(rig, 10.0)
    rig.restart()
    small = rig.submit("sleep 10", gpus=4)
    play(rig, 60.0)
    assert rig.attempts(*gangs, small) == [0, 0, 0]
    assert "holds 4 of them" in rig.service.desk.why(ADMIN, gangs[1])["text"]
    play(rig, 100.0)
    assert rig.attempts(*gangs, small) == [0, 0, 1]
