"""Output on disk: files in a job's record while it runs, moved to a folder of their own when the record goes.

`stdout-4096.log` holds the bytes from number 4096 on. The keeper begins a new file when one is full and removes all
but the last two, so a reader needs no more than names and sizes. `times-N.log` says when output came (`output.Marks`),
and is kept the same way. Keepers from before this had `stdout.log` and its
predecessor `stdout.log.1`, kept as `stdout` and `stdout.1`: there the oldest byte that is left counts as the first.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from cotenant.backends.base import LogMark, LogPart, Stream
from cotenant.backends.local.output import MARK_BYTES

_NAME = re.compile(r"(stdout|stderr|times)(?:-([0-9]{1,18})\.log|(?:\.log)?(\.1)?)")
_PREDECESSOR, _NEWEST = -2, -1  # places of files that do not say where they begin


class LocalLog:
    """One stream of one attempt, over the files of these folders. It holds nothing open in between."""

    def __init__(
        self, key: str, stream: Stream | Literal["times"], folders: tuple[Path, ...], lives: Callable[[], bool]
    ) -> None:
        self.key = key
        self._stream, self._folders, self._lives = stream, folders, lives

    def span(self) -> tuple[int, int]:
        """The oldest byte that is kept, and the end."""
        with self._opened() as files:
            return (files[0][0], sum(files[-1][:2])) if files else (0, 0)

    def read(self, offset: int, size: int) -> LogPart:
        """Bytes from an offset on, through the files as if they were one."""
        with self._opened() as files:
            at = max(offset, files[0][0]) if files else offset
            data = b""
            for first, length, fd in files:
                place = at + len(data) - first
                if 0 <= place < length:
                    data += os.pread(fd, min(size - len(data), length - place), place)
            return LogPart(at, data)

    def ended(self) -> bool:
        """Whether nothing of the attempt runs any more."""
        return not self._lives()

    @contextmanager
    def _opened(self) -> Iterator[list[tuple[int, int, int]]]:
        """First byte, size and handle of each file, oldest first.

        The record is looked at before the folder of kept files, to which files move, and the newer file before the
        older, whose name it takes where names say nothing: so each is found, or one twice, which is tried again.
        """
        while True:
            with ExitStack() as stack:
                found: dict[int, int] = {}
                for folder in self._folders:
                    for place, name in sorted(_files(folder, self._stream), reverse=True):
                        if place not in found and (fd := _open(folder / name, stack)) is not None:
                            found[place] = fd
                if len({os.fstat(fd).st_ino for fd in found.values()}) == len(found):
                    yield _in_a_row(found)
                    return


class LocalTimes:
    """The marks of one attempt, found by halving: each field only grows."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    def marks(self, at_s: float, stdout: float, stderr: float, most: int) -> list[LogMark]:
        """From the last mark that lies at or before all three on, up to `most`."""
        first, end = (place // MARK_BYTES for place in self._log.span())
        wanted = (at_s, stdout, stderr)
        low, high = first, end  # marks below `low` are at or before, those from `high` on are not
        while low < high:
            middle = (low + high) // 2
            mark = self._read(middle, 1)
            if mark and all(has <= asked for has, asked in zip(mark[0], wanted, strict=True)):
                low = middle + 1
            else:
                high = middle
        return self._read(max(low - 1, first), most)

    def _read(self, number: int, count: int) -> list[LogMark]:
        data = self._log.read(number * MARK_BYTES, count * MARK_BYTES).data
        return [
            LogMark(time_us / 1e6, stdout, stderr)
            for time_us, stdout, stderr in struct.iter_unpack(">3Q", data[: len(data) // MARK_BYTES * MARK_BYTES])
        ]


def keep(record: Path, target: Path) -> None:
    """Move the files of an ended attempt. Doing it twice, or after a crash half-way, is harmless."""
    for stream in ("stdout", "stderr", "times"):
        for _, name in sorted(_files(record, stream)):
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.move(record / name, target / name)


def _files(folder: Path, stream: str) -> list[tuple[int, str]]:
    """Names of a stream's files, each with its first byte or, in files that do not say that, its place."""
    found = []
    with suppress(OSError):
        for name in os.listdir(folder):
            if (match := _NAME.fullmatch(name)) is not None and match[1] == stream:
                old = _PREDECESSOR if match[3] else _NEWEST
                found.append((int(match[2]) if match[2] is not None else old, name))
    return found


def _in_a_row(found: dict[int, int]) -> list[tuple[int, int, int]]:
    files, end = [], 0
    for place, fd in sorted(found.items()):
        size = os.fstat(fd).st_size
        first = place if place >= 0 else end
        files.append((first, size, fd))
        end = first + size
    return files


def _open(path: Path, stack: ExitStack) -> int | None:
    """A plain file of one name, and no link or pipe that a job put in its place."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
            return fd
    return None
