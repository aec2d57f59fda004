"""Handing jobs to Slurm while something of ours fails."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

from cotenant.backends.slurm.commands import SlurmJob
from cotenant.backends.slurm.poll import Poll
from cotenant.backends.slurm.records import SlurmRecord
from cotenant.backends.slurm.submitter import Submitter
from cotenant.testing.backend_kit import PATIENCE_S


class Controller:
    """Takes everything."""

    took_s = 0.0

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def jobs(self) -> dict[str, SlurmJob]:
        return {key: SlurmJob(at, "PENDING", "", 0.0, "", key) for at, key in enumerate(self.submitted, start=1)}

    def submit(self, key: str, options: list[str], script: str, env: dict[str, str]) -> int:
        self.submitted.append(key)
        return len(self.submitted)


class FullFor(SlurmRecord):
    """The disk is full when some files are written for the first time."""

    __slots__ = ("names",)

    def write(self, name: str, data: bytes) -> None:
        if name in self.names:
            self.names.remove(name)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(name, data)


def test_a_full_disk_delays_submissions_and_does_not_end_them(tmp_path: Path) -> None:
    slurm, handed = Controller(), threading.Semaphore(0)
    submitter = Submitter(slurm, Poll(slurm), 10, lambda: handed.release())  # type: ignore[arg-type]
    records = [FullFor(tmp_path, f"{number}-1") for number in (1, 2)]
    for record, names in zip(records, ({"tried", "job"}, set()), strict=True):
        record.names = names
        lock = record.lock()
        assert lock is not None
        record.write("order.json", json.dumps({"options": [], "script": "", "env": {}}).encode())
        record.write("spec.json", b'{"key": "1-1"}')
        os.close(lock)
        submitter.put(record)
    try:
        for _ in records:
            assert handed.acquire(timeout=PATIENCE_S)
    finally:
        submitter.close()
    assert slurm.submitted == ["1-1", "2-1"], "once each, though the number of the first could not be written at once"
    assert [record.number() for record in records] == [1, 2]
