"""What is on disk of one job: `<state>/jobs/<key>/`, readable by its owner only.

lock        held by the keeper for as long as it lives (an open-file-description lock, see fcntl(2))
spec.json   what was asked, with the names but not the values of the environment
keeper.in   the same for the keeper, environment included; the keeper removes it as soon as it has read it
child.json  who runs: pid and start time of job and keeper, boot, start; from here on the key counts as started
term        the service has asked the job to end
exit.json   how it ended
stdout-N.log, stderr-N.log   output from byte N on (see `logs`)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cotenant.backends.base import LaunchSpec, Observed, check_key
from cotenant.backends.local import procs
from cotenant.core.errors import InputError

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, pid


@dataclass(frozen=True, slots=True)
class Child:
    """Who runs, by names that a reused pid cannot take over."""

    pid: int
    ticks: int
    keeper: int
    keeper_ticks: int
    boot: str
    started_s: float


@dataclass(frozen=True, slots=True)
class Exit:
    """How it ended. Neither code nor signal: its keeper failed, and has killed what there was of it."""

    code: int | None
    signal: int | None
    oom: bool
    started_s: float
    ended_s: float
    message: str

    def observed(self, key: str) -> Observed:
        """The same, as the boundary says it. A job is not to blame for its keeper."""
        times = (self.started_s, self.ended_s)
        if self.code is None and self.signal is None:
            return Observed(key, "lost", False, None, None, *times, message=self.message)
        return Observed(key, "exited", False, self.code, self.signal, *times, self.oom, self.message)


class KeeperRecord:
    """One job's directory."""

    __slots__ = ("key", "path")

    def __init__(self, jobs: Path, key: str) -> None:
        self.key = check_key(key)
        self.path = jobs / key

    def exists(self) -> bool:
        """Whether there is anything of this key."""
        return self.path.is_dir()

    def lock(self) -> int | None:
        """Take the lock and return its handle; None when a keeper has it. Creates the directory."""
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            try:
                fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # forgotten in between
            try:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
            except BlockingIOError:
                os.close(fd)
                return None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(self.path / "lock")):
                    return fd
            os.close(fd)

    def held(self) -> bool:
        """Whether a keeper lives, asked without taking the lock even for a moment."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            ask = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
            kind: int = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, ask))[0]
            return kind != fcntl.F_UNLCK
        finally:
            os.close(fd)

    def child(self) -> Child | None:
        """Who was started; None when nobody ever was."""
        data = self._read("child.json")
        return Child(**data) if data else None

    def exit(self) -> Exit | None:
        """How it ended; None while that is not known."""
        data = self._read("exit.json")
        return Exit(**data) if data else None

    def started(self) -> bool:
        """Whether the key is spent."""
        return (self.path / "child.json").exists() or (self.path / "exit.json").exists()

    def spec(self) -> dict[str, Any]:
        """What was asked."""
        return self._read("spec.json") or {}

    def launched(self) -> LaunchSpec | None:
        """What was asked; the values of the environment are those of the first process, while it lives."""
        facts, child = self.spec(), self.child()
        if not facts:
            return None
        env = procs.environment(child.pid) if child is not None and self.held() else {}
        plain = {field.name for field in fields(LaunchSpec)} - {"env", "calls_home", "gpus", "argv", "cpus", "slice"}
        return LaunchSpec(
            **{name: value for name, value in facts.items() if name in plain},
            argv=None if facts.get("argv") is None else tuple(facts["argv"]),
            gpus=tuple((node, tuple(indexes)) for node, indexes in facts.get("gpus", ())),
            env={name: env[name] for name in facts.get("env", ()) if name in env},
            slice=tuple(facts.get("slice", (0, 0))),
        )

    def cgroups(self) -> dict[str, str]:
        """The job's control groups by role, as they were chosen at launch."""
        return dict(self.spec().get("cgroups", {}))

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place, whole and for the owner alone."""
        temporary = self.path / f"{name}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, self.path / name)

    def pause(self, begins: bool) -> None:
        """Note for the keeper that the job stands still from now on, or no more: its time does not count meanwhile."""
        path = self.path / "paused"
        lines = path.read_text().split() if path.exists() else []
        if len(lines) % 2 != int(begins):
            self.write("paused", "".join(f"{line}\n" for line in [*lines, repr(time.monotonic())]).encode())

    def keep_end(self, target: Path) -> None:
        """Put how it ended beside its log: a journal that is restored from a backup may have to ask."""
        with contextlib.suppress(FileNotFoundError):
            data = (self.path / "exit.json").read_bytes()
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            (target / "exit.json").write_bytes(data)

    def remove(self, trash: Path) -> None:
        """Gone at one stroke: a half-removed record would read as another state."""
        grave = tempfile.mkdtemp(dir=trash)
        os.rename(self.path, os.path.join(grave, self.key))
        shutil.rmtree(grave, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            data: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return None
        return data


def all_records(jobs: Path) -> list[KeeperRecord]:
    """Every record, ordered by key; what else somebody put there is passed over."""
    found = []
    for name in sorted(os.listdir(jobs)):
        with contextlib.suppress(InputError):
            found.append(KeeperRecord(jobs, name))
    return found
