"""A launch survives `kill -9` anywhere: of the caller at each of its steps, and of the keeper at any instant."""

from __future__ import annotations

import errno
import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from local_world import LocalWorld, pid_of, wait_gone

from cotenant.backends import BackendError
from cotenant.backends.local import cgroups, keeper, procs
from cotenant.backends.local.records import KeeperRecord

STEPS = 20
LATE = 60  # about the steps that follow the spawn
SEED = 20261115


def _launch_and_die(world: LocalWorld, key: str, script: str, steps: int | None) -> int:
    """In a child: launch and die by SIGKILL after that many traced steps. Returns the steps made, -1 if it died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        made = 0

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal made
            frame.f_trace_opcodes = frame.f_code.co_filename.endswith(("local/backend.py", "local/records.py"))
            made += 1
            if made == steps:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            backend = world.another()
            sys.settrace(trace)
            backend.launch(world.spec(key, script))
            sys.settrace(None)
            os.write(writer, str(made).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 64)
    os.close(reader)
    os.waitpid(pid, 0)
    return int(told) if told else -1


def _script(world: LocalWorld, key: str) -> str:
    return f"echo $$ >> {world.work}/{key}.starts; echo $$ > {world.work}/pipe1; sleep infinity"


def _check_one(world: LocalWorld, key: str, pid: int) -> None:
    """Exactly one process runs, ran ever, and is reported."""
    one = world.until(key, "running")
    assert pid_of(one) == pid
    assert world.marked(key) == {pid}
    assert (world.work / f"{key}.starts").read_text().split() == [str(pid)]
    world.backend.kill(key)
    world.until(key, "exited")
    world.backend.forget(key)
    assert world.marked(key) == set()
    assert not Path(world.record(key)).exists()


@pytest.mark.slow
def test_caller_killed_at_every_kind_of_step(world: LocalWorld) -> None:
    with world.pipe() as pipe:
        total = _launch_and_die(world, "whole-0", _script(world, "whole-0"), None)
        assert total > 200
        _check_one(world, "whole-0", int(pipe.line()))
        early = 0
        chance = random.Random(SEED)
        points = chance.sample(range(1, total - LATE), STEPS) + chance.sample(range(total - LATE, total), STEPS)
        for turn, step in enumerate(sorted(points)):
            key = f"crash-{turn}"
            assert _launch_and_die(world, key, _script(world, key), step) == -1
            before = world.seen(key)
            assert before is None or before.state in ("starting", "running")
            early += before is None
            world.launch(key, _script(world, key))  # the service after its restart
            pid = int(pipe.line())
            _check_one(world, key, pid)
            assert pipe.silent()
        assert STEPS <= early < 2 * STEPS  # the points lie on both sides of the start


@pytest.mark.slow
def test_two_restarted_services_race(world: LocalWorld) -> None:
    """Should two callers ever launch the same key at once, one process starts."""
    with world.pipe() as pipe:
        for turn in range(8):
            key = f"race-{turn}"
            pids = []
            for _ in range(2):
                pid = os.fork()
                if pid == 0:
                    try:
                        world.another().launch(world.spec(key, _script(world, key)))
                    finally:
                        os._exit(0)
                pids.append(pid)
            for pid in pids:
                os.waitpid(pid, 0)
            _check_one(world, key, int(pipe.line()))
            assert pipe.silent()


@pytest.mark.slow
def test_keeper_killed_at_random_instants(world: LocalWorld) -> None:
    """At most one start ever; what was started is reported (lost), what was not can be launched again."""
    instants = random.Random(SEED + 1)
    fates = []
    began_s = time.monotonic()
    world.launch("first-1", "exit 0")
    world.until("first-1", "exited")
    long_s = 1.5 * (time.monotonic() - began_s)  # on a busy machine a keeper takes its time
    for turn in range(20):
        key = f"orphan-{turn}"
        before = set(world.backend._watcher.children)
        world.launch(key, f"echo $$ >> {world.work}/{key}.starts; sleep infinity")
        (keeper,) = world.backend._watcher.children - before
        select.select([], [], [], instants.uniform(0.0, long_s))
        os.kill(keeper, signal.SIGKILL)
        wait_gone(keeper)
        while (one := world.seen(key)) and one.state == "starting":  # its child has not let go of the lock yet
            select.select([], [], [], 0.001)
        fates.append(one.state if one else "never")
        assert fates[-1] in ("lost", "never")
        if one is None:
            assert KeeperRecord(world.state / "jobs", key).child() is None
            world.launch(key, f"echo $$ >> {world.work}/{key}.starts; exit 0")
            assert world.until(key, "exited").exit_code == 0
        elif world.backend.kill(key):
            while (left := world.seen(key)) and left.alive:
                assert world.backend.wait_change(30)
        world.backend.forget(key)
        assert world.marked(key) == set()
        starts = world.work / f"{key}.starts"
        assert not starts.exists() or len(starts.read_text().split()) <= 1
    assert len(set(fates)) == 2, fates


@pytest.mark.parametrize("what", ["spec.json", "keeper.in"])
def test_a_full_disk_starts_nothing(world: LocalWorld, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = KeeperRecord.write

    def full(self: KeeperRecord, name: str, data: bytes) -> None:
        if name == what:
            raise OSError(28, "No space left on device")
        write(self, name, data)

    monkeypatch.setattr(KeeperRecord, "write", full)
    with pytest.raises(BackendError, match="nothing was started"):
        world.launch("full-1", "exit 0")
    monkeypatch.undo()
    assert world.backend.observe() == []
    world.launch("full-1", "exit 0")
    assert world.until("full-1", "exited").exit_code == 0


def test_a_job_is_not_to_blame_for_its_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds the disk full, say: the job is lost, and starts again, instead of having failed."""
    record = tmp_path / "jobs" / "kept-1"
    record.mkdir(parents=True)
    monkeypatch.chdir(record)
    keeper.record_exit(keeper.KeptJob(b""), 0, 1.0, 2.0, "\nthe keeper failed: No space left on device")
    end = KeeperRecord(tmp_path / "jobs", "kept-1").exit()
    assert end is not None
    seen = end.observed("kept-1")
    assert (seen.state, seen.alive, seen.exit_code, seen.signal) == ("lost", False, None, None)
    assert "No space left" in seen.message


class _Dies(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def test_a_suspension_that_was_begun_is_carried_through(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service dies when it has asked, or the first process stopped: all must stand before it counts as done."""
    with world.pipe() as pipe:
        world.launch("torn-1", f"sleep infinity & echo $! > {pipe.path}; wait")
        child = int(pipe.line())
        leader = pid_of(world.until("torn-1", "running"))
        freeze, waited = cgroups.freeze, []

        def freeze_and_die(path: str, frozen: bool) -> bool:
            monkeypatch.setattr(cgroups, "is_frozen", lambda _: True)  # asked, and not obeyed yet
            raise _Dies

        def send_and_die(pid: int, number: signal.Signals, check: Any) -> bool:
            os.kill(leader, number)
            while procs.state_of(leader) != "T":
                select.select([], [], [], 0.001)
            raise _Dies

        def freeze_and_note(path: str, frozen: bool) -> bool:
            waited.append(freeze(path, frozen))
            return waited[-1]

        with monkeypatch.context() as torn:
            torn.setattr(cgroups, "freeze", freeze_and_die)
            torn.setattr(procs, "send", send_and_die)
            with pytest.raises(_Dies):
                world.backend.suspend("torn-1")
        monkeypatch.setattr(cgroups, "freeze", freeze_and_note)
        with world.another_handle() as again:
            assert again.suspend("torn-1")
            fenced = again.capabilities().suspend == "freezer"
            assert waited == [True] if fenced else procs.state_of(child) == "T"
            assert again.resume("torn-1")


def test_version_1_is_waited_for_until_all_stand_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["FREEZING", "FREEZING", "FROZEN"]
    (tmp_path / "freezer.state").touch()
    monkeypatch.setattr(cgroups, "text_of", lambda path: states.pop(0) + "\n")
    assert cgroups.freeze(str(tmp_path), True)
    assert states == []
    assert cgroups.freeze(str(tmp_path), False)


def test_a_group_that_goes_while_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends in the middle of its suspension: nothing was suspended, and nobody is to stumble over it."""
    group = tmp_path / "group"
    group.mkdir()
    (tmp_path / "cgroup.subtree_control").touch()
    (group / "cgroup.freeze").touch()
    assert not cgroups.freeze(str(group), True)
    (group / "cgroup.events").touch()

    def gone(*_: object) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "pread", gone)
    assert not cgroups.freeze(str(group), True)
