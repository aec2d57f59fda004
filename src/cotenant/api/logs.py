"""Places in a log that grows, loses its oldest part, and may be another attempt's by the time somebody comes back.

A place (cursor) is the number of a byte and a checksum of those just before it. Where others are there instead of
these, the reader gets what is left from the start, and is told that there is a gap.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from cotenant.backends.base import LogReader
from cotenant.core.errors import InputError

_CURSOR = re.compile(r"(?:[0-9a-f]{1,16}-)?([0-9]{1,15})-([0-9a-f]{8})")  # older ones begin with the number of a file
_TAIL = 64
_UNKNOWN = "00000000"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some bytes, where to go on, and whether bytes before them are gone."""

    data: bytes
    cursor: str
    gap: bool = False


def read_chunk(log: LogReader | None, offset: str, most: int) -> Chunk:
    """Up to `most` bytes from an offset: a cursor, a number of bytes from the oldest kept, or -N for the last N."""
    match = _CURSOR.fullmatch(offset)
    if match is None and not re.fullmatch(r"-?[0-9]{1,15}", offset):
        raise InputError("offset: write a number of bytes, or what X-Offset-Next said")
    if log is None:
        return Chunk(b"", offset)
    first, end = log.span()
    if match is None:
        start = max(first, end + int(offset)) if offset.startswith("-") else min(first + int(offset), end)
    else:
        start = int(match[1])
        if start > end or _check(log, start) not in (match[2], ""):
            start = -1
    part = log.read(max(start, first), most)
    place = part.at + len(part.data)
    return Chunk(part.data, f"{place}-{_check(log, place) or _UNKNOWN}", gap=match is not None and part.at > start)


def _check(log: LogReader, place: int) -> str:
    """The checksum of the bytes before a place; '' where they are no longer there."""
    begin = max(0, place - _TAIL)
    part = log.read(begin, place - begin)
    return f"{zlib.crc32(part.data):08x}" if part.at == begin and len(part.data) == place - begin else ""
