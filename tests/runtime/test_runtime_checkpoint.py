from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import effort
from cotenant.runtime import _checkpoint
from cotenant.runtime._checkpoint import MANIFEST, CheckpointStore


def writer(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        (path / "sub").mkdir()
        (path / "sub" / "b").write_text(text)
        (path / "a").write_text(text)

    return write


def test_the_newest_of_two_is_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "deep" / "er")
    assert store.newest() is None
    for step in (5, 9, 12, 3):  # the last from a run that began anew: the number decides, not the step
        store.save(step, writer(str(step)))
    newest = store.newest()
    assert newest is not None
    assert (newest.step, newest.number) == (3, 4)
    assert (newest.path / "sub" / "b").read_text() == "3"
    assert sorted(os.listdir(store.directory)) == ["checkpoint-00000003-step-12", "checkpoint-00000004-step-3"]


def test_torn_checkpoints_are_passed_over_and_swept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    first = store.save(1, writer("one"))
    second = store.save(2, writer("two"))
    (second.path / "a").write_text("t")  # truncated
    assert store.newest().path == first.path  # type: ignore[union-attr]
    (second.path / MANIFEST).unlink()
    assert store.newest().step == 1  # type: ignore[union-attr]
    (tmp_path / ".saving-00000009-1").mkdir()
    store.save(3, writer("three"))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-00000001-step-1", "checkpoint-00000002-step-3"]


def test_a_failing_save_leaves_no_trace(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, writer("one"))

    def fail(path: Path) -> None:
        writer("half")(path)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.save(2, fail)
    assert os.listdir(tmp_path) == ["checkpoint-00000001-step-1"]


class Deadly:
    """Kills the process with SIGKILL at the n-th call of anything that touches the disk."""

    def __init__(self, fatal: int) -> None:
        self.calls = 0
        self.fatal = fatal

    def wrap(self, fn: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            self.calls += 1
            if self.calls == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return fn(*args, **options)

        return call


def save_and_die(directory: Path, fatal: int) -> int:
    """Save step 4 in a process that dies at the fatal call; returns how many calls a whole save takes."""
    deadly = Deadly(fatal)
    for owner, name in ((os, "fsync"), (os, "rename"), (os, "rmdir"), (os, "unlink"), (os, "open"), (os, "mkdir")):
        setattr(owner, name, deadly.wrap(getattr(owner, name)))

    def write(path: Path) -> None:
        for part in ("a", "b", "c"):
            with deadly.wrap(open)(path / part, "w") as file:  # type: ignore[attr-defined]
                file.write("four")
                os.fsync(file.fileno())

    CheckpointStore(directory).save(4, write)
    return deadly.calls


def in_child(act: Callable[[], int]) -> int:
    """Wait status of a forked child that runs act and exits with its result."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(act())
        except BaseException:
            os._exit(255)
    return os.waitpid(pid, 0)[1]


def test_kill_9_at_every_point_of_a_save_never_loses_the_previous_checkpoint(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        directory = tmp_path / name
        for step in (1, 2, 3):
            CheckpointStore(directory).save(step, writer(str(step)))
        return directory

    template = fresh("template")
    shutil.copytree(template, tmp_path / "whole")
    points = os.waitstatus_to_exitcode(in_child(lambda: save_and_die(tmp_path / "whole", 0)))
    assert 20 < points < 200
    seen = set()
    order = list(range(1, points + 1))
    random.Random(7).shuffle(order)
    for fatal in effort.some(order):
        directory = tmp_path / f"at-{fatal}"
        shutil.copytree(template, directory)
        status = in_child(lambda directory=directory, fatal=fatal: save_and_die(directory, fatal))  # type: ignore[misc]
        assert os.WIFSIGNALED(status)
        newest = CheckpointStore(directory).newest()
        assert newest is not None
        assert newest.step in (3, 4)
        content = (newest.path / "a").read_text()
        assert content == ("3" if newest.step == 3 else "four")
        seen.add(newest.step)
        after = CheckpointStore(directory).save(5, writer("5"))  # the next process cleans up and goes on
        names = os.listdir(directory)
        assert after.path.name in names
        assert len(names) == 2
        assert not [name for name in names if name.startswith(".")]
    assert seen == {3, 4}


def test_a_file_named_like_the_manifest_does_no_harm(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, lambda path: (path / _checkpoint.MANIFEST).write_text("mine"))
    assert store.newest().step == 1  # type: ignore[union-attr]
