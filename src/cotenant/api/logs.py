"""Reading the output of a job in pieces, while it grows, loses its oldest part, moves, and the job starts anew.

A place (cursor) is `ATTEMPT.BYTE`, or `ATTEMPT.BYTE.BYTE` for both streams together. Bytes are numbered from the first
that the attempt ever wrote, so a place means the same wherever the output is kept and however much of it is gone.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cotenant.backends.base import LogMark, LogPart, LogReader, LogTimes, Stream
from cotenant.core.errors import InputError

CURSOR = r"[0-9]{1,7}(\.[0-9]{1,15}){1,2}"
OLDER = r"([0-9a-f]{1,16}-)?([0-9]{1,15})-([0-9a-f]{8})"  # a byte of the newest attempt, and a checksum before it
_NUMBER = r"-?[0-9]{1,15}"
_CHECKED = 64
_MARKS = 1000
_TAIL_BYTES = 8 << 20  # where fewer lines are that long, fewer are given
_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    """What one attempt printed: one stream, or both, and when."""

    attempt: int
    streams: tuple[Stream, ...]
    logs: tuple[LogReader, ...]
    times: LogTimes

    def mark_place(self, mark: LogMark, number: int) -> int:
        """Where the stream of this number was at a mark."""
        return mark.stdout if self.streams[number] == "stdout" else mark.stderr

    def marks(self, places: Sequence[int]) -> list[LogMark]:
        """From the one on that these places come after, and one more than are used at a time."""
        asked: dict[str, float] = dict(zip(self.streams, places, strict=True))
        return self.times.marks(math.inf, asked.get("stdout", math.inf), asked.get("stderr", math.inf), _MARKS + 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one stream (which of those asked for), the number of the first, and about when they came."""

    stream: int
    at: int
    data: bytes
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some output, where to go on, and whether bytes before it are gone."""

    pieces: tuple[Piece, ...]
    cursor: str
    gap: bool = False

    @property
    def data(self) -> bytes:
        """As it is shown."""
        return b"".join(piece.data for piece in self.pieces)


def check_offset(offset: str) -> None:
    """Refuse what is none."""
    if not re.fullmatch(f"{CURSOR}|{OLDER}|{_NUMBER}", offset):
        raise InputError("offset: write a number of bytes, or what X-Offset-Next said")


def read_on(
    opened: Callable[[int], AttemptOutput], newest: int, only: int, offset: str, most: int, stamped: bool = False
) -> Chunk:
    """Up to `most` bytes from an offset on: of one attempt, or from the newest (or the cursor's) on of each in turn.

    `newest` was asked for before: all attempts before it had ended by then, so what they printed is complete.
    """
    check_offset(offset)
    attempt = only or (int(offset.partition(".")[0]) if "." in offset else newest)
    if not newest:
        return Chunk((), offset)
    output = opened(attempt)
    chunk = read_chunk(output, offset, most, stamped)
    while not chunk.pieces and not only and attempt < newest:
        attempt += 1
        chunk = read_chunk(opened(attempt), beginning(attempt, len(output.logs)), most, stamped)
    return chunk


def read_chunk(output: AttemptOutput, offset: str, most: int, stamped: bool = False) -> Chunk:
    """As `read_on`, of one attempt. `stamped` puts before each line when it came."""
    spans = [log.span() for log in output.logs]
    starts, known = _starts(output, offset, spans)
    gap = known and any(start < first for start, (first, _) in zip(starts, spans, strict=True))
    places = [max(start, first) for start, (first, _) in zip(starts, spans, strict=True)]
    ends = [end for _, end in spans]
    found: list[Piece] = []
    for piece in _in_order(output, places, ends, stamped):
        data = piece.data[:most]
        gap = gap or (known and piece.at > places[piece.stream])  # rotated away since it was looked at
        found.append(Piece(piece.stream, piece.at, data, piece.at_s))
        places[piece.stream] = piece.at + len(data)
        most -= len(data)
        if not most:
            break
    pieces = _stamp(output.logs, found) if stamped else found
    return Chunk(tuple(pieces), _cursor(output.attempt, places), gap)


def start_of(output: AttemptOutput, tail: int | None, since_s: float | None) -> str:
    """The cursor of the last `tail` lines, or of the first byte at or after a time, whichever is later."""
    spans = [log.span() for log in output.logs]
    places, ends = [first for first, _ in spans], [end for _, end in spans]
    if since_s is not None:
        marks = output.times.marks(since_s, math.inf, math.inf, 2)
        later = next((mark for mark in marks if mark.at_s >= since_s), None)
        if later is not None:
            places = [max(place, output.mark_place(later, n)) for n, place in enumerate(places)]
        elif marks:  # without any nothing is known, and all is shown
            places = ends
    if tail is not None:
        backs = [_back(log, place, end, tail) for log, place, end in zip(output.logs, places, ends, strict=True)]
        lines = [] if tail == 0 else [*_line_starts(output, backs, ends)][-tail:]
        places = [min((at for n, at in lines if n == stream), default=end) for stream, end in enumerate(ends)]
    return _cursor(output.attempt, places)


def beginning(attempt: int, streams: int) -> str:
    """The cursor of an attempt's first byte: who comes late to it is told of the gap."""
    return _cursor(attempt, [0] * streams)


def _cursor(attempt: int, places: Sequence[int]) -> str:
    return ".".join(map(str, (attempt, *places)))


def _starts(output: AttemptOutput, offset: str, spans: list[tuple[int, int]]) -> tuple[list[int], bool]:
    """Where to begin in each stream, and whether that is a place where somebody was; -1 where he cannot have been."""
    if "." in offset:
        places = [int(part) for part in offset.split(".")[1:]]
        if len(places) != len(spans):
            raise InputError("offset: it is of another stream than the one asked for")
        return [place if place <= end else -1 for place, (_, end) in zip(places, spans, strict=True)], True
    if len(spans) > 1 and offset != "0":
        raise InputError("offset: for both streams write 0 or what X-Offset-Next said; tail=N gives the last lines")
    if older := re.fullmatch(OLDER, offset):
        place = int(older[2])
        before = output.logs[0].read(max(0, place - _CHECKED), min(place, _CHECKED))
        same = before.at + len(before.data) == place and f"{zlib.crc32(before.data):08x}" == older[3]
        return [place if same else -1], True
    if offset.startswith("-"):
        return [max(first, end + int(offset)) for first, end in spans], False
    return [min(first + int(offset), end) for first, end in spans], False


class _Ahead:
    """Reads a log in larger blocks than are asked for: between two marks there may be a few bytes only."""

    def __init__(self, log: LogReader) -> None:
        self._log, self._part = log, LogPart(0, b"")

    def take(self, place: int, size: int) -> LogPart:
        """Some bytes from a place on."""
        at, data = self._part.at, self._part.data
        if not at <= place < at + len(data):
            self._part = self._log.read(place, _BLOCK)
            at, data = self._part.at, self._part.data
        start = max(place, at)
        return LogPart(start, data[start - at : start - at + size])


def _in_order(output: AttemptOutput, starts: Sequence[int], ends: Sequence[int], timed: bool) -> Iterator[Piece]:
    """What lies between, in the order in which it came: between two marks stdout before stderr."""
    places, ahead = list(starts), [_Ahead(log) for log in output.logs]
    while waiting := [n for n, place in enumerate(places) if place < ends[n]]:
        marks = output.marks(places) if timed or len(waiting) > 1 else []
        used: list[LogMark | None] = [*marks[:_MARKS]] or [None]
        for mark, after in zip_longest(used, marks[1:]):
            for n in waiting:
                until = ends[n] if after is None else min(ends[n], output.mark_place(after, n))
                while places[n] < until:
                    part = ahead[n].take(places[n], until - places[n])
                    if not part.data:
                        return
                    known = mark is not None and part.at >= output.mark_place(mark, n)
                    yield Piece(n, part.at, part.data, mark.at_s if mark is not None and known else None)
                    places[n] = part.at + len(part.data)


def _back(log: LogReader, first: int, end: int, lines: int) -> int:
    """Where the last so many lines begin, or some more of them; an end without newline is a line."""
    place = end
    while lines >= 0 and place > max(first, end - _TAIL_BYTES):
        start = max(first, place - _BLOCK)
        lines -= log.read(start, place - start).data.count(b"\n")
        place = start
    return place


def _line_starts(output: AttemptOutput, starts: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Stream and place of each line that begins between, in order."""
    fresh = [_fresh(log, place) for log, place in zip(output.logs, starts, strict=True)]
    for piece in _in_order(output, starts, ends, timed=False):
        place = piece.at
        for line in _lines(piece.data):
            if fresh[piece.stream]:
                yield piece.stream, place
            fresh[piece.stream] = line.endswith(b"\n")
            place += len(line)


def _stamp(logs: Sequence[LogReader], pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Lines with the time of their first byte before them; without that time, a dash."""
    fresh: dict[int, bool] = {}
    for piece in pieces:
        begins = fresh[piece.stream] if piece.stream in fresh else _fresh(logs[piece.stream], piece.at)
        mark = _shown_time(piece.at_s)
        lines = _lines(piece.data)
        stamped = [mark + line if n or begins else line for n, line in enumerate(lines)]
        fresh[piece.stream] = lines[-1].endswith(b"\n")
        yield Piece(piece.stream, piece.at, b"".join(stamped), piece.at_s)


def _lines(data: bytes) -> list[bytes]:
    """Split after newlines only."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _fresh(log: LogReader, place: int) -> bool:
    """Whether a line begins here."""
    before = log.read(place - 1, 1) if place else None
    return before is None or before.at != place - 1 or before.data == b"\n"


def _shown_time(at_s: float | None) -> bytes:
    if at_s is None:
        return b"- "
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))
    return f"{whole}.{int(at_s * 1000) % 1000:03d}Z ".encode()
