"""What is on the shared home of one job in native mode: the record of a keeper, and what only Slurm's jobs have.

order.json  the batch script and its options
tried       it is being submitted, or was: whoever finds no number asks Slurm by the comment first
job         the number that Slurm gave it
claimed     the Slurm job that runs it: a second one of the same key ends at once, without having done anything
failed      of a gang: how the first rank ended that failed, its exit code or signal (negative)
heard       the job's shell was told to end, and has passed it on
gpus.NODE   the GPUs that it has there, as Slurm numbers them
sure        Slurm has no other word on how a gang failed
killed      we have asked Slurm to end it
lost        why nobody knows how it ended, or why it never began
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from cotenant.backends.base import Observed
from cotenant.backends.local.records import Child, Exit, KeeperRecord


class SlurmRecord(KeeperRecord):
    """One job's directory. What never changes once it is there is read once."""

    __slots__ = ("_child", "_end", "_facts", "_gpus", "_over_s")

    def __init__(self, jobs: Path, key: str) -> None:
        super().__init__(jobs, key)
        self._child: Child | None = None
        self._end: Observed | None = None
        self._facts: dict[str, Any] = {}
        self._over_s = 0.0
        self._gpus: tuple[tuple[str, tuple[int, ...]], ...] | None = None

    def spec(self) -> dict[str, Any]:
        """What was asked."""
        self._facts = self._facts or super().spec()
        return self._facts

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its launch; none for one that runs anywhere."""
        return tuple(name for name, _ in self.spec().get("gpus", ()))

    @property
    def gang(self) -> bool:
        """Whether it runs on several nodes."""
        return len(self.nodes) > 1

    def submitted_s(self) -> float:
        """When it got its number, by the monotonic clock."""
        return time.monotonic() - self.age_s("job")

    def over_for_s(self) -> float:
        """For how long we have known that Slurm is done with it."""
        self._over_s = self._over_s or time.monotonic()
        return time.monotonic() - self._over_s

    def unheard_s(self) -> float:
        """For how long it has been told to end and has not heard it; 0 where it was not told, or has."""
        return 0.0 if self.has("heard") else self.age_s("term")

    def age_s(self, name: str) -> float:
        """How long ago a file was written; 0 where there is none."""
        try:
            return max(time.time() - os.stat(self.path / name).st_mtime, 1e-3)
        except OSError:
            return 0.0

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self.path / name)

    def text(self, name: str) -> str:
        """What a small file says; '' where there is none."""
        with contextlib.suppress(OSError):
            return (self.path / name).read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def number(self) -> int | None:
        """The number that Slurm gave it."""
        text = self.text("job")
        return int(text) if text.isdigit() else None

    def child(self) -> Child | None:
        """Who was started."""
        self._child = self._child or super().child()
        return self._child

    def gpus(self, nodes: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
        """The GPUs that it has on its nodes; None while some node has not said so."""
        if self._gpus is None:
            texts = [(node, self.text(f"gpus.{node}")) for node in nodes]
            if any(not self.has(f"gpus.{node}") for node in nodes):
                return None
            self._gpus = tuple((node, indexes_of(text)) for node, text in texts)
        return self._gpus

    def end(self) -> Observed | None:
        """How it ended: a gang as the first of its ranks that failed."""
        if self._end is None:
            found, first = self.exit(), self.text("failed") if self.gang else ""
            if self.has("lost"):
                self._end = Observed(self.key, "lost", message=self.text("lost"))
            elif found is not None:
                code, number = found.code, found.signal
                if first and (found.code or found.signal):
                    code, number = (int(first), None) if int(first) > 0 else (None, -int(first))
                if self.has("killed") and (number == signal.SIGTERM or (self.gang and code)):
                    code, number = None, signal.SIGKILL  # Slurm begins with SIGTERM, and `srun` has a code for both
                times = {"started_s": found.started_s or None, "exit_code": code, "signal": number}
                self._end = dataclasses.replace(found.observed(self.key), **times)  # type: ignore[arg-type]
        return self._end

    def settle(self, number: int) -> None:
        """Write down how it ended, where its keeper could not: it was killed on our word."""
        child = self.child()
        end = Exit(None, number, False, child.started_s if child is not None else 0.0, time.time(), "")
        self.write("exit.json", json.dumps({name: getattr(end, name) for name in Exit.__slots__}).encode())

    def lose(self, why: str) -> None:
        """Write down that nobody knows how it ended, or that it never began."""
        self.write("lost", why.encode())
        self._end = None


def indexes_of(text: str) -> tuple[int, ...]:
    """`0,2-3` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found += range(int(first), int(last if last.isdigit() else first) + 1)
    return tuple(found)
