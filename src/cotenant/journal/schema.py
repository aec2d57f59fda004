"""The tables as queries see them, and the upgrade of what an older Cotenant stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from cotenant.journal.codec import Stored, checksum
from cotenant.journal.errors import JournalCorrupt, JournalTooNew
from cotenant.journal.migrations import MIGRATIONS, VERSION

META = sa.table("cotenant_meta", sa.column("name", sa.Text), sa.column("value", sa.Text))

LEADER = "leader"  # under this name: where the one who writes answers

RECORD = sa.table(
    "cotenant_record",
    sa.column("seq", sa.BigInteger),
    sa.column("time_s", sa.Double),
    sa.column("kind", sa.Text),
    sa.column("job", sa.Text),
    sa.column("data", sa.Text),
    sa.column("crc", sa.BigInteger),
)

SNAPSHOT = sa.table(
    "cotenant_snapshot",
    sa.column("seq", sa.BigInteger),
    sa.column("time_s", sa.Double),
    sa.column("state", sa.LargeBinary),
)


def upgrade(connection: Connection, types: Mapping[str, str], name: str) -> None:
    """Bring the journal called `name` to `VERSION`, inside the transaction of `connection`."""
    found = _stored_version(connection, name)
    if found > VERSION:
        raise JournalTooNew(f"journal {name} has schema {found}, this Cotenant knows up to {VERSION}: upgrade Cotenant")
    for step in MIGRATIONS[found:]:
        for statement in step:
            connection.exec_driver_sql(statement.format(**types))
    if found < VERSION:
        write_meta(connection, "schema_version", VERSION)


def _stored_version(connection: Connection, name: str) -> int:
    if not sa.inspect(connection).has_table(META.name):
        return 0
    version = read_meta(connection, "schema_version")
    if version < 1:
        raise JournalCorrupt(f"journal {name} has no schema version: `cotenant restore` a backup")
    return version


def read_meta(connection: Connection, name: str) -> int:
    """A whole number kept under `name`; 0 when there is none."""
    value = connection.execute(sa.select(META.c.value).where(META.c.name == name)).scalar()
    return int(value) if value is not None and value.isdecimal() else 0


def read_text(connection: Connection, name: str) -> str:
    """A text kept under `name`; empty when there is none."""
    if not sa.inspect(connection).has_table(META.name):
        return ""
    return str(connection.execute(sa.select(META.c.value).where(META.c.name == name)).scalar() or "")


def write_meta(connection: Connection, name: str, value: int | str) -> None:
    """Keep a whole number, or a text, under `name`."""
    connection.execute(sa.delete(META).where(META.c.name == name))
    connection.execute(sa.insert(META), {"name": name, "value": str(value)})


def position(connection: Connection) -> tuple[int, float]:
    """Number and time of the last record ever stored, pruned or not (a snapshot covers the pruned ones)."""
    query = sa.select(RECORD.c.seq, RECORD.c.time_s).order_by(RECORD.c.seq.desc()).limit(1)
    seq, time_s = connection.execute(query).first() or (0, 0.0)
    covered = connection.execute(sa.select(SNAPSHOT.c.seq, SNAPSHOT.c.time_s)).first() or (0, 0.0)
    return max(seq, covered[0]), max(time_s, covered[1])


def forget_after(connection: Connection, seq: int) -> None:
    """Take back the records after `seq`, of which nobody was ever told that they are stored."""
    connection.execute(sa.delete(RECORD).where(RECORD.c.seq > seq))


def insert_rows(connection: Connection, rows: Iterable[Stored]) -> None:
    """Add records."""
    columns = RECORD.c.keys()
    if values := [dict(zip(columns, (*row, checksum(*row)), strict=True)) for row in rows]:
        connection.execute(sa.insert(RECORD), values)
