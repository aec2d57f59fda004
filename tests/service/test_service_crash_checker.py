"""What the jobs of `bench.crash` take for two on one GPU: only whoever may really do something there."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0


class Trail:
    """Jobs of the benchmark on GPU 0, without a service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[subprocess.Popen[bytes]] = []
        text = subprocess.check_output(
            [sys.executable, "-c", "from bench.crash_jobs import *; print(PRELUDE, LOOKER, sep='\\0')"],
            cwd=ROOT,
            text=True,
        )
        for name, part in zip(("prelude", "looker"), text.split("\0"), strict=True):
            (folder / name).write_text(part)
        self.ask = ""

    def look(self) -> None:
        """From now on jobs ask somebody outside, as in a sandbox."""
        os.mkfifo(self.folder / "ask")
        env = {"PATH": os.environ["PATH"], "TRAIL": str(self.folder)}
        command = ["bash", str(self.folder / "looker")]
        self.jobs.append(subprocess.Popen(command, env=env, start_new_session=True))
        self.ask = "1"

    def start(self, job: str, text: str, path: str = "", most: int = 1) -> subprocess.Popen[bytes]:
        env = {"PATH": path + os.environ["PATH"], "TRAIL": str(self.folder), "CUDA_VISIBLE_DEVICES": "0"}
        env["ASK"] = self.ask
        env["MOST_ON_GPU"] = str(most)
        env |= {"COTENANT_JOB": job, "COTENANT_KEY": f"{job}-1", "COTENANT_MARK": f"{self.folder}/{job}-1"}
        command = ["bash", "-c", f'. "$TRAIL/prelude"; {text}']
        self.jobs.append(subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL))
        return self.jobs[-1]

    def said(self, word: str, job: str) -> list[str]:
        path = self.folder / "trail"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(f"{word} {job}-1 ")]

    def clashes(self, job: str, most: int = 1) -> list[str]:
        """Of a job that starts and ends now: whom it saw run on its GPU, beyond as many as may be there."""
        assert self.start(job, "end 0", most=most).wait(PATIENCE_S) == 0
        assert self.said("start", job)
        assert self.said("end", job)
        return [line.split()[-1] for line in self.said("clash", job)]

    def file(self, job: str, pid: int) -> Path:
        return self.folder / f"gpu.0.{job}-1.{pid}"


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    here = Trail(tmp_path)
    yield here
    for job in here.jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def _until(what: str, path: Path) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not (path.exists() and what in path.read_text()):
        assert time.monotonic() < give_up, f"no {what!r} in {path}"
        time.sleep(0.01)


def _ended() -> int:
    """The number of a process that was and is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_one_that_runs_is_seen_and_one_that_stands_still_is_not(trail: Trail) -> None:
    other = trail.start("other", "sleep infinity & wait")
    _until("start other-1", trail.folder / "trail")
    assert trail.clashes("first") == [f"gpu.0.other-1.{other.pid}"] * 2
    os.killpg(other.pid, signal.SIGSTOP)
    assert trail.clashes("second") == []
    assert trail.file("other", other.pid).exists()
    os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    assert trail.clashes("third") == []
    assert not trail.file("other", other.pid).exists()


def test_somebody_outside_sees_whom_jobs_in_sandboxes_cannot_see(trail: Trail) -> None:
    trail.look()
    other = trail.start("other", "sleep infinity & wait")
    _until("start other-1", trail.folder / "trail")
    assert trail.clashes("first") == ["gpu.0.other-1.0"] * 2
    os.killpg(other.pid, signal.SIGSTOP)
    assert trail.clashes("second") == []
    os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    assert trail.clashes("third") == []
    assert not trail.file("other", 0).exists()


def test_as_many_as_the_policy_allows_are_company(trail: Trail) -> None:
    other = trail.start("other", "sleep infinity & wait", most=2)
    _until("start other-1", trail.folder / "trail")
    assert trail.clashes("second", most=2) == []
    assert len(trail.said("company", "second")) == 2
    trail.start("third", "sleep infinity & wait", most=9)
    _until("start third-1", trail.folder / "trail")
    assert len(trail.clashes("fourth", most=2)) == 2, "at its start and at its end"
    assert trail.file("other", other.pid).exists()


def test_one_that_stands_still_only_with_its_first_process_is_seen(trail: Trail) -> None:
    other = trail.start("other", 'sleep infinity & echo two > "$TRAIL/there"; wait')
    _until("two", trail.folder / "there")
    os.kill(other.pid, signal.SIGSTOP)
    assert trail.clashes("mine") == [f"gpu.0.other-1.{other.pid}"] * 2


def test_one_suspended_while_it_looks_is_not_taken_for_the_one_it_looks_at(trail: Trail) -> None:
    """A job holds a lock on the file of an ended one for a moment, to remove it; it may be suspended in this moment."""
    ended = trail.file("ended", _ended())
    ended.touch()
    tools = trail.folder / "tools"
    tools.mkdir()
    (tools / "rm").write_text(f'#!/bin/bash\necho "removes" > {trail.folder}/here; sleep infinity\n')
    (tools / "rm").chmod(0o755)
    looks = trail.start("looks", "end 0", path=f"{tools}:")
    _until("removes", trail.folder / "here")
    os.killpg(looks.pid, signal.SIGSTOP)
    assert trail.clashes("mine") == []


def test_one_that_was_killed_while_suspended_and_is_not_quite_gone_is_not_seen(trail: Trail) -> None:
    """Its lock outlives its memory by a moment, and nothing of it can run any more."""
    dying = trail.file("dying", _ended())
    with dying.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert trail.clashes("mine") == []
    assert dying.exists()
