"""Who did what: a line of JSON for every request that changes something or was refused, in files of bounded size.

A line is written before its answer is sent, with one write to a file that only grows, so it survives the service.
Refusals of strangers are bounded: beyond some a second they are only counted.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.api.shares import Bucket

MOST_BYTES = 16 << 20
KEPT_FILES = 8
_STRANGERS_RATE, _STRANGERS_BURST = 5.0, 100.0


class AuditLog:
    """`audit.jsonl` in a folder, and older ones beside it as `audit.1.jsonl`, ..."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._lock = threading.Lock()
        self._strangers = Bucket(_STRANGERS_RATE, _STRANGERS_BURST)
        self._uncounted = 0
        self._handle = self._open()
        self.lost = 0

    def _open(self) -> int:
        return os.open(self._name(0), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _name(self, age: int) -> Path:
        return self._folder / (f"audit.{age}.jsonl" if age else "audit.jsonl")

    def note(self, row: dict[str, Any], stranger: bool = False) -> None:
        """One line more. A full disk stops nobody's work: what cannot be written is counted."""
        with self._lock:
            if stranger and not self._strangers.take():
                self._uncounted += 1
                return
            if self._uncounted:
                row, self._uncounted = {**row, "refused_before": self._uncounted}, 0
            try:
                os.write(self._handle, json.dumps(row, separators=(",", ":")).encode() + b"\n")
                if os.fstat(self._handle).st_size >= self._most_bytes:
                    self._turn()
            except OSError:
                self.lost += 1

    def _turn(self) -> None:
        """Begin a new file; the oldest is dropped."""
        for age in range(KEPT_FILES - 1, -1, -1):
            if self._name(age).exists():
                os.replace(self._name(age), self._name(age + 1))
        os.close(self._handle)
        self._handle = self._open()

    def read(self, since_s: float, limit: int) -> list[dict[str, Any]]:
        """The newest lines since a moment, oldest of them first."""
        found: list[dict[str, Any]] = []
        for age in range(KEPT_FILES + 1):
            rows = list(_rows(self._name(age)))
            late = [row for row in rows if row["time_s"] >= since_s]
            found[:0] = late
            if len(found) >= limit or len(late) < len(rows):
                break
        return found[-limit:]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; one that was cut by a full disk is passed over."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "time_s" in row:
                    yield row
