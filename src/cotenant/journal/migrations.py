"""The stored layout, as the list of steps that lead to it. A released step is never edited; add one instead.

Opening a journal applies the steps it lacks inside one transaction (both databases roll back DDL), so that a
crash during an upgrade leaves the old layout. `{seq}`, `{real}` and `{blob}` are the dialect's column types.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 1: records, a snapshot, and settings such as the version.
    (
        "CREATE TABLE cotenant_meta (name VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE cotenant_record (seq {seq} PRIMARY KEY, time_s {real} NOT NULL, kind TEXT NOT NULL,"
        " job TEXT NOT NULL, data TEXT NOT NULL)",
        "CREATE TABLE cotenant_snapshot (seq {seq} PRIMARY KEY, state {blob} NOT NULL)",
    ),
    # 2: the records of one job without reading all; the time of the last record even when it is pruned.
    (
        "CREATE INDEX cotenant_record_job ON cotenant_record (job, seq)",
        "ALTER TABLE cotenant_snapshot ADD COLUMN time_s {real} NOT NULL DEFAULT 0",
    ),
    # 3: a checksum per record, so that damage inside a page is noticed. Older records have none.
    ("ALTER TABLE cotenant_record ADD COLUMN crc {seq}",),
)

VERSION = len(MIGRATIONS)
