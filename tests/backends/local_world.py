"""A local backend in a test: its state directory, a way to hear from its jobs, and the proof that nothing is left."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.backends import LaunchSpec, Observed
from cotenant.backends.local import LocalBackend, procs
from cotenant.testing.backend_kit import PATIENCE_S, seen, until, whole


class LocalWorld:
    def __init__(self, root: Path, cgroups: bool, **more: Any) -> None:
        self.state = root / "state"
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        self.cgroups = cgroups
        self.home = root / "home"
        self.more: dict[str, Any] = {"gpu_types": ["gpu"] * 4, "use_cgroups": cgroups, "home": str(self.home), **more}
        self.home.mkdir(exist_ok=True)
        self.backend = LocalBackend(self.state, **self.more)
        self.pipes = 0

    def another(self) -> LocalBackend:
        return LocalBackend(self.state, **self.more)

    @contextlib.contextmanager
    def another_handle(self) -> Iterator[LocalBackend]:
        backend = self.another()
        try:
            yield backend
        finally:
            backend.close()

    def spec(self, key: str, script: str, **more: Any) -> LaunchSpec:
        return LaunchSpec(**{"key": key, "job": "job", "workdir": str(self.work), "script": script, **more})

    def launch(self, key: str, script: str, **more: Any) -> None:
        self.backend.launch(self.spec(key, script, **more))

    def seen(self, key: str) -> Observed | None:
        return seen(self.backend, key)

    def until(self, key: str, *states: str) -> Observed:
        return until(self.backend, key, *states)

    def record(self, key: str) -> Path:
        return self.state / "jobs" / key

    def log(self, key: str, stream: str = "stdout") -> str:
        return whole(self.backend.open_log(key, stream)).decode()  # type: ignore[arg-type]

    def pipe(self) -> Pipe:
        self.pipes += 1
        return Pipe(self.work / f"pipe{self.pipes}")

    def marked(self, key: str) -> set[int]:
        return {p for p in procs.marked(self.mark(key)) if procs.state_of(p) not in "ZX"}

    def mark(self, key: str) -> bytes:
        return f"COTENANT_MARK={self.backend.label}/{key}".encode()

    def end_all(self) -> None:
        for one in self.backend.observe():
            if one.state != "exited":
                self.backend.kill(one.key)
            if one.state != "lost":
                self.until(one.key, "exited", "lost")
            self.backend.forget(one.key)
        for key in os.listdir(self.state / "jobs"):
            self.backend.forget(key)

    def leftovers(self) -> list[str]:
        """Processes, keepers, groups and records of any job."""
        found, mark = [], f"COTENANT_MARK={self.backend.label}/".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(f"process {name}")
                if os.fsencode(self.state) in (args := Path(f"/proc/{name}/cmdline").read_bytes()):
                    found.append(f"keeper {name}: {args!r}")
        found += map(str, self.backend.groups())
        return found + os.listdir(self.state / "jobs") + os.listdir(self.state / "trash")

    def assert_nothing_left(self) -> None:
        assert self.leftovers() == []
        assert sorted(os.listdir(self.state)) == ["jobs", "notify", "trash"]


def pid_of(one: Observed | None) -> int:
    """The process that the hint of the local backend names."""
    assert one is not None
    return int(one.hint.removeprefix("pid "))


class Pipe:
    """A named pipe: jobs write lines to it (`echo ready > $path`), the test waits for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.buffer = b""

    def line(self) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while b"\n" not in self.buffer:
            assert select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0], "no line came"
            self.buffer += os.read(self.fd, 4096)
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def silent(self) -> bool:
        return not self.buffer and not select.select([self.fd], [], [], 0)[0]

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_gone(pid: int) -> None:
    """Until a process that is not ours to reap has ended."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            assert select.select([handle], [], [], PATIENCE_S)[0], f"{pid} lives on"
        finally:
            os.close(handle)


def kill_hard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
