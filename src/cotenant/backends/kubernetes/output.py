"""Output of pods, kept at home: the API gives what a node still has of it, by time; readers want bytes by number.

A node keeps only the last files of a log and forgets it with the pod, so whatever was read is written down here, in the
files that `backends.local.logs` reads. Where it was left off is noted for each container by time and by how many lines
had that very time; and how long the files were then, so that a crash in between neither loses nor doubles a line.
What is said by containers of a gang is put together as it is found.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from cotenant.backends.base import Stream
from cotenant.backends.local.output import MARK_BYTES

STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_PLACES = "places.json"
_MARKS = "times"
_MARKS_LIMIT = MARK_BYTES << 17
_FINE_US = 10_000
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")

Line = tuple[int, bytes]  # nanoseconds since 1970, text
Place = tuple[int, int]  # a time, and how many lines of that time


def split_line(raw: bytes) -> Line:
    """`2026-11-16T15:04:05.123456789Z text` as the API gives it; what has no time belongs to the line before."""
    if (match := _TIME.match(raw)) is None:
        return 0, raw
    zone = "+00:00" if match[3] == b"Z" else match[3].decode()
    whole_s = int(datetime.fromisoformat(match[1].decode() + zone).timestamp())
    return whole_s * 10**9 + int((match[2] or b"0").ljust(9, b"0")), raw[match.end() :]


class KeptOutput:
    """What is kept of one key, in a folder. Any number of handles and threads may add to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, source: str) -> Place:
        """How far a container has been read."""
        with self._held() as state:
            at = state["places"].get(source, (0, 0))
            return int(at[0]), int(at[1])

    def add(self, source: str, stream: Stream, limits: Sequence[int], lines: Sequence[tuple[Place, bytes]]) -> None:
        """Write down the lines that are not there yet; each comes with its own place."""
        with self._held() as state:
            last = tuple(state["places"].get(source, (0, 0)))
            fresh = [(place, text) for place, text in lines if place > last]
            if not fresh:
                return
            files = {name: _Rotating(self.folder, name, state["ends"].get(name)) for name in (*STREAMS, _MARKS)}
            for place, text in fresh:
                self._mark(state, files, place[0] // 1000)
                files[stream].write(text, limits[STREAMS.index(stream)])
            state["places"][source] = fresh[-1][0]
            state["ends"] = {name: file.place() for name, file in files.items()}
            self._save(state)

    def drop(self) -> None:
        """Delete it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mark(self, state: dict[str, Any], files: dict[str, _Rotating], at_us: int) -> None:
        """When output came: before a line that is 10 ms later than the last that was marked."""
        if at_us - state["marked_us"] >= _FINE_US:
            state["marked_us"] = at_us
            files[_MARKS].write(struct.pack(">3Q", at_us, *(files[name].end for name in STREAMS)), _MARKS_LIMIT)

    @contextmanager
    def _held(self) -> Iterator[dict[str, Any]]:
        """The state, read under a lock that other handles respect."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                state = json.loads((self.folder / _PLACES).read_text(encoding="ascii"))
            except (OSError, ValueError):
                state = {"places": {}, "ends": {}, "marked_us": 0}
            yield state
        finally:
            os.close(lock)

    def _save(self, state: dict[str, Any]) -> None:
        fresh = self.folder / f"{_PLACES}.new"
        fresh.write_text(json.dumps(state), encoding="ascii")
        fresh.replace(self.folder / _PLACES)


class _Rotating:
    """Files named by the number of their first byte, as the keeper of local jobs writes them: the last two are kept."""

    def __init__(self, folder: Path, stream: str, place: Sequence[int] | None) -> None:
        self._folder, self._stream = folder, stream
        self._first, self._size = place or (0, 0)
        with suppress(OSError):  # what a crash left behind the place that was noted
            os.truncate(self._path(), self._size)

    @property
    def end(self) -> int:
        """The number of the next byte."""
        return self._first + self._size

    def place(self) -> tuple[int, int]:
        """First byte and size of the newest file."""
        return self._first, self._size

    def _path(self) -> Path:
        return self._folder / f"{self._stream}-{self._first}.log"

    def write(self, data: bytes, limit: int) -> None:
        """Append, in a new file where one is full."""
        while data:
            if self._size >= limit:
                self._begin_anew()
            part, data = data[: limit - self._size], data[limit - self._size :]
            with open(self._path(), "ab") as file:
                file.write(part)
            self._size += len(part)

    def _begin_anew(self) -> None:
        full = self._first
        self._first, self._size = self.end, 0
        for path in self._folder.glob(f"{self._stream}-*.log"):
            if int(path.stem.rpartition("-")[2]) < full:
                path.unlink(missing_ok=True)
