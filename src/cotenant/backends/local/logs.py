"""Output on disk: files in a job's record while it runs, moved to a folder of their own when the record goes.

`stdout-4096.log` holds the bytes from number 4096 on. The keeper begins a new file when one is full and removes all
but the last two, so a reader needs no more than names and sizes. Keepers from before this had `stdout.log` and its
predecessor `stdout.log.1`, kept as `stdout` and `stdout.1`: there the oldest byte that is left counts as the first.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cotenant.backends.base import LogPart, Stream

_NAME = re.compile(r"(stdout|stderr)(?:-([0-9]{1,18})\.log|(?:\.log)?(\.1)?)")
_PREDECESSOR, _NEWEST = -2, -1  # places of files that do not say where they begin


class LocalLog:
    """One stream of one attempt, over the files of these folders. It holds nothing open in between."""

    def __init__(self, key: str, stream: Stream, folders: tuple[Path, ...], lives: Callable[[], bool]) -> None:
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


def keep(record: Path, target: Path) -> None:
    """Move the files of an ended attempt. Doing it twice, or after a crash half-way, is harmless."""
    for stream in ("stdout", "stderr"):
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
    """A plain file, and no link or pipe that a job put in its place."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
    return None
