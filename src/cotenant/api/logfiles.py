"""Reading a log that grows and rotates: `X.log` and its predecessor `X.log.1`, as one text with a place in it.

A place (cursor) names a file by inode, a position in it, and a checksum of the bytes just before. The file keeps its
inode when it becomes `.1`, so a reader goes on where it was; where inodes are used again the checksum tells, and the
reader gets what is left from the start, and is told that there is a gap.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import InputError

_CURSOR = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,15})-([0-9a-f]{8})")
_TAIL = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes, where to go on, and whether bytes before them are gone."""

    data: bytes
    cursor: str
    gap: bool = False


def read_chunk(path: Path | None, offset: str, most: int) -> Chunk:
    """Up to `most` bytes from an offset: a cursor, a number of bytes from the oldest kept, or -N for the last N."""
    match = _CURSOR.fullmatch(offset)
    if match is None and not re.fullmatch(r"-?[0-9]{1,15}", offset):
        raise InputError("offset: write a number of bytes, or what X-Offset-Next said")
    if path is None:
        return Chunk(b"", offset)
    with _opened(path) as files:
        sizes = [os.fstat(fd).st_size for fd in files]
        if match is None:
            at = int(offset)
            start = max(0, at + sum(sizes)) if at < 0 else at
            return _read(files, sizes, start, most, gap=False)
        before = 0
        for fd, size in zip(files, sizes, strict=True):
            place = int(match[2])
            if os.fstat(fd).st_ino == int(match[1], 16) and place <= size and _check(fd, place) == match[3]:
                return _read(files, sizes, before + place, most, gap=False)
            before += size
        return _read(files, sizes, 0, most, gap=True)


def _read(files: list[int], sizes: list[int], start: int, most: int, gap: bool) -> Chunk:
    """Bytes from a position in the files as one text; the cursor is in the last file touched."""
    parts: list[bytes] = []
    cursor = str(start)
    for number, (fd, size) in enumerate(zip(files, sizes, strict=True)):
        last = number == len(files) - 1
        if start >= size and not last:
            cursor = _cursor(fd, size)
            start -= size
            continue
        place = min(start, size)
        part = os.pread(fd, most, place)
        parts.append(part)
        most -= len(part)
        start = 0
        if part or place or number == 0:  # an empty file's start is no place to recognise: stay at the older one's end
            cursor = _cursor(fd, place + len(part))
        if most <= 0:
            break
    return Chunk(b"".join(parts), cursor, gap)


def _cursor(fd: int, place: int) -> str:
    return f"{os.fstat(fd).st_ino:x}-{place}-{_check(fd, place)}"


def _check(fd: int, place: int) -> str:
    first = max(0, place - _TAIL)
    return f"{zlib.crc32(os.pread(fd, place - first, first)):08x}"


@contextmanager
def _opened(path: Path) -> Iterator[list[int]]:
    """The files that there are, oldest first. The newer is opened first: a rotation in between shows as one twice."""
    older = path.with_name(path.name + ".1")
    while True:
        with ExitStack() as stack:
            found = [fd for name in (path, older) if (fd := _open(name, stack)) is not None]
            if len(found) == 2 and os.fstat(found[0]).st_ino == os.fstat(found[1]).st_ino:
                continue
            yield found[::-1]
            return


def _open(path: Path, stack: ExitStack) -> int | None:
    """A plain file, and no link or pipe that a job put in its place."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
    return None
