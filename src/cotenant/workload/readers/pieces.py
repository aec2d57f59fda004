"""A log of any size, a piece at a time: what does not fit in memory is never there as a whole.

Text is cut between lines, and every piece goes through the reader of its format, with all of its checks; ids are
compared within a piece. A log that fits in one piece, and the JSON of Philly, is read at once.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Workload
from cotenant.workload.readers import FORMATS, duration_means, find_reader, finish, read
from cotenant.workload.readers.table import Table, first_fields, load_csv, open_bytes

PIECE_BYTES = 48 << 20
_PIECE_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some jobs of a log, and how much of its bytes has been read so far."""

    work: Workload
    duration_means: str
    done: int
    total: int


def read_pieces(
    path: str | Path, *, format: str | None = None, profile: str | None = None, piece_bytes: int = PIECE_BYTES
) -> Iterator[LogPiece]:
    """The jobs of a log in the order of the file, in pieces of about so many bytes of text."""
    path = Path(path)
    if not path.is_file():
        open_bytes(path)  # says what is wrong
    total = os.path.getsize(path)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with _unpacked(path, packed) as stream:
        head = _take(path, stream, piece_bytes)
        small = len(head) < piece_bytes
        if small or head.lstrip()[:1] in (b"[", b"{") or (format is not None and format not in FORMATS):
            yield LogPiece(read(path, format=format, profile=profile), duration_means(path, head, format), total, total)
        elif head[:4] == b"PAR1":
            yield from _parquet(path, format, profile, total)
        else:
            yield from _text(path, head, stream, format, profile, piece_bytes, total)


def _unpacked(path: Path, packed: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def _text(
    path: Path, head: bytes, stream: IO[bytes], format: str | None, profile: str | None, piece_bytes: int, total: int
) -> Iterator[LogPiece]:
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    cells, separator = first_fields(head)
    reader, headerless = find_reader(path, tuple(cells), format)
    first, _, rest = head.partition(b"\n")
    header = b"" if headerless else first + b"\n"
    block, lines = (head if headerless else rest), 0
    while block:
        block += _to_line_end(path, stream, block)
        table = load_csv(path, header + block, separator, reader.headerless if headerless else None, lines)
        lines += block.count(b"\n")
        work = finish(reader.parse(table, _file(profile)), profile)
        yield LogPiece(work, reader.duration_means, _position(stream, total), total)
        block = _take(path, stream, piece_bytes)


def _parquet(path: Path, format: str | None, profile: str | None, total: int) -> Iterator[LogPiece]:
    import polars as pl

    try:
        lazy = pl.scan_parquet(path)
        rows = int(lazy.select(pl.len()).collect().item())
        reader, _ = find_reader(path, tuple(lazy.collect_schema().names()), format)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"{path}: parquet data is truncated or corrupt; copy the file again") from None
    for first in range(0, rows, _PIECE_ROWS):
        frame = lazy.slice(first, _PIECE_ROWS).collect()
        table = Table(path, frame, np.arange(first, first + len(frame)))
        done = total * min(first + len(frame), rows) // rows
        yield LogPiece(finish(reader.parse(table, _file(profile)), profile), reader.duration_means, done, total)


def _file(profile: str | None) -> Path | None:
    return Path(profile) if profile and Path(profile).is_file() else None


def _take(path: Path, stream: IO[bytes], size: int) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path}: gzip data is truncated or corrupt; copy the file again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _to_line_end(path: Path, stream: IO[bytes], block: bytes) -> bytes:
    """The rest of the last line; more lines where a quoted text goes on over their ends."""
    more, quotes = b"", block.count(b'"')
    while not (more or block).endswith(b"\n") or quotes % 2:
        try:
            line = stream.readline()
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise InputError(f"{path}: gzip data is truncated or corrupt; copy the file again") from None
        if not line:
            break
        more, quotes = more + line, quotes + line.count(b'"')
    return more


def _position(stream: IO[bytes], total: int) -> int:
    inner = getattr(stream, "fileobj", None)  # of gzip: how much of the packed bytes
    return min((inner or stream).tell(), total)
