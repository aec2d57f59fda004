"""Pilots against a Slurm that is slow to say what it knows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from cotenant.backends.slurm.commands import SlurmJob
from cotenant.backends.slurm.nodes import NodeList
from cotenant.backends.slurm.pilots import Pilots, PilotSettings
from cotenant.testing.backend_kit import PATIENCE_S

NODE = {
    "NodeName": "n1",
    "Gres": "gpu:a100:4",
    "State": "IDLE",
    "CPUTot": "8",
    "RealMemory": "64000",
    "Partitions": "main",
}
OLD = SlurmJob(1, "COMPLETED", "", 0.0, "n1", "pilot/n1")


class SlowSlurm:
    """Its poll answers when it is let, with what was true when it was asked."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.asked, self.let = threading.Semaphore(0), threading.Semaphore(1)

    def jobs(self) -> dict[str, SlurmJob]:
        found = {what: SlurmJob(2, "PENDING", "", 0.0, "", what) for what in self.submitted}
        self.asked.release()
        assert self.let.acquire(timeout=PATIENCE_S)
        return {"pilot/n1": OLD} | found

    def submit(self, what: str, options: Sequence[str], script: str) -> int:
        self.submitted.append(what)
        return 2

    def nodes(self) -> list[dict[str, str]]:
        return [NODE]

    def partitions(self) -> list[dict[str, str]]:
        return [{"PartitionName": "main", "Default": "YES"}]


def test_a_poll_from_before_a_submission_does_not_bring_a_second_pilot(tmp_path: Path) -> None:
    slurm = SlowSlurm()
    pilots = Pilots(tmp_path, slurm, NodeList(slurm, "", 5.0), PilotSettings(), poll_s=0.0)  # type: ignore[arg-type]
    assert slurm.asked.acquire(timeout=PATIENCE_S)  # the first look, which is over
    assert slurm.asked.acquire(timeout=PATIENCE_S)  # the next one is under way
    pilots.wake(["n1"])
    slurm.let.release()
    assert slurm.asked.acquire(timeout=PATIENCE_S)  # its answer is in: it knows of an older pilot only
    pilots.wake(["n1"])
    assert slurm.submitted == ["pilot/n1"]
    slurm.let.release(1000)
    pilots.close()
