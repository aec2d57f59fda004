"""PostgreSQL 12 or later, through psycopg 3: for those who already run and back up a server.

The one writer is whoever holds an advisory lock, taken on the very connection that writes: it cannot keep
writing after losing the lock, and the server frees the lock when the connection ends. It ends it when its client has
said nothing for a few seconds, dead or hung: whoever writes asks every second. The lock is per database
and schema (`?options=-csearch_path%3Dname` selects one), so that several journals can share a server.
"""

from __future__ import annotations

import os
import socket
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from cotenant.core.errors import InputError
from cotenant.journal.dialect import Dialect, FailureCause
from cotenant.journal.errors import JournalBusy, JournalUnavailable
from cotenant.journal.schema import LEADER, read_text

LOCK_CLASS = 0x636F7465  # "cote"
CONNECT_TIMEOUT_S = 5
LOCK_WAIT_MS = 1000  # the server may notice a killed predecessor a moment after its restart
# Notice a vanished server, and let it notice us, within about ten seconds: whoever writes waits so long.
_KEEPALIVE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}

_SILENT = {
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
}
_HEED = sa.text("SELECT set_config(name, :value, false) FROM pg_settings WHERE name = :name")  # those that it knows

_LOCK = sa.text("SELECT pg_advisory_lock(:lock_class, hashtext(current_schema()))")
_HOLDER = sa.text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = CAST(:lock_class AS oid)"
    " AND l.objid = CAST(CAST(hashtext(current_schema()) AS bigint) & 4294967295 AS oid)"
)


class Postgresql(Dialect):
    """A journal in the current schema of a PostgreSQL database."""

    types: ClassVar[dict[str, str]] = {"seq": "BIGINT", "real": "DOUBLE PRECISION", "blob": "BYTEA"}
    far: ClassVar[bool] = True

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self.name = f"'{url.render_as_string(hide_password=True)}'"

    def hold(self) -> None:
        """Nothing: the lock needs a connection."""

    def release(self) -> None:
        """Nothing: the lock went with its connection."""

    def engine(self) -> Engine:
        """Connections that say who they are and are checked before they are used again."""
        who = f"cotenant process {os.getpid()} on {socket.gethostname()}"[:63]
        wanted = {"application_name": who, "connect_timeout": CONNECT_TIMEOUT_S, **_KEEPALIVE}
        given = {name: value for name, value in wanted.items() if name not in self._url.query}
        try:
            return sa.create_engine(self._url, connect_args=given, pool_pre_ping=True, pool_size=4, max_overflow=12)
        except ImportError:
            raise InputError(
                "PostgreSQL needs psycopg, which is not installed: pip install 'psycopg[binary]'"
            ) from None

    def claim(self, connection: Connection) -> None:
        """Take the advisory lock; make sure that a commit waits for the disk."""
        with connection.begin():
            if connection.exec_driver_sql("SELECT current_schema()").scalar() is None:
                raise JournalUnavailable(f"journal {self.name} names a schema that does not exist: create it")
            if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
                connection.exec_driver_sql("SET synchronous_commit = on")
            for name, value in _SILENT.items():
                connection.execute(_HEED, {"name": name, "value": value})
        try:
            with connection.begin():
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                connection.execute(_LOCK, {"lock_class": LOCK_CLASS})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != "55P03":  # lock not available
                raise
            with connection.begin():
                holder = connection.execute(_HOLDER, {"lock_class": LOCK_CLASS}).scalar() or "another process"
                leader = read_text(connection, LEADER)
            busy = JournalBusy(
                f"journal {self.name} is in use by {holder}: stop that service or choose another journal"
            )
            busy.leader = leader
            raise busy from None

    def begin(self, connection: Connection) -> None:
        """Nothing: the driver begins by itself."""

    def cause(self, error: DBAPIError) -> FailureCause:
        """By SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html."""
        state = getattr(error.orig, "sqlstate", None) or ""
        if error.connection_invalidated or state.startswith(("08", "57P")):
            return FailureCause.LOST
        return {"53100": FailureCause.FULL, "XX001": FailureCause.CORRUPT, "XX002": FailureCause.CORRUPT}.get(
            state, FailureCause.ENTRY
        )
