"""Entries to rows and back, the same for every journal, so that the twin in memory refuses what a disk would."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from cotenant.journal.base import Entry, Record
from cotenant.journal.errors import BadEntry, JournalCorrupt

Row = tuple[str, str, str]
"""kind, job, data as JSON text."""
Stored = tuple[int, float, str, str, str]
"""seq, time_s and then a `Row`."""

MAX_NAME_BYTES = 512
MAX_DATA_BYTES = 16 << 20

# ASCII only: PostgreSQL stores no NUL and no database a lone surrogate, but their escapes pass everywhere.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def to_rows(entries: Sequence[Entry]) -> list[Row]:
    """The rows of one append; `BadEntry` when one of them cannot be stored."""
    return [_row(entry) for entry in entries]


def _row(entry: Entry) -> Row:
    for what, name in (("kind", entry.kind), ("job", entry.job)):
        if not _storable(name) or (what == "kind" and not name):
            raise BadEntry(f"bad {what} {name!r:.80}: give text of at most {MAX_NAME_BYTES} bytes without NUL")
    if not isinstance(entry.data, dict):
        raise BadEntry(f"data of '{entry.kind}' is a {type(entry.data).__name__}: give a dictionary")
    try:
        data = _encode(entry.data)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadEntry(f"data of '{entry.kind}' is not JSON: {error}") from None
    if len(data) > MAX_DATA_BYTES:
        raise BadEntry(f"data of '{entry.kind}' has {len(data)} bytes: at most {MAX_DATA_BYTES} can be stored")
    return entry.kind, entry.job, data


def _storable(name: object) -> bool:
    try:
        return isinstance(name, str) and len(name.encode()) <= MAX_NAME_BYTES and "\0" not in name
    except UnicodeEncodeError:
        return False


def checksum(seq: int, time_s: float, kind: str, job: str, data: str) -> int:
    """What a record is held against when it is read."""
    return zlib.crc32(f"{seq}\n{time_s!r}\n{kind}\n{job}\n{data}".encode())


def sound(stored: Iterable[Any]) -> Stored:
    """A row as it was written; `JournalCorrupt` when its checksum, which old records lack, does not fit."""
    seq, time_s, kind, job, data, crc = stored
    try:
        good = crc is None or crc == checksum(seq, float(time_s), kind, job, data)
    except (TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise _damaged(seq)
    return seq, time_s, kind, job, data


def to_record(stored: Stored) -> Record:
    """A row as the caller sees it."""
    seq, time_s, kind, job, data = stored
    try:
        return Record(seq, time_s, kind, job, json.loads(data))
    except ValueError:
        raise _damaged(seq) from None


def _damaged(seq: object) -> JournalCorrupt:
    return JournalCorrupt(f"record {seq} of the journal is damaged: `cotenant restore` a backup")
