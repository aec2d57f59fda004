"""What can befall a journal between two starts and while it is in use: each is noticed, and said in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_postgres import PostgresServer

from cotenant.journal import (
    Entry,
    JournalAway,
    JournalCorrupt,
    JournalError,
    JournalReadOnly,
    open_journal,
)
from cotenant.journal.copying import restore
from cotenant.journal.sql import SqlJournal


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come true in time"
        time.sleep(0.02)


def filled(path: Path, records: int = 3000) -> Path:
    with open_journal(str(path)) as journal:
        journal.append([Entry("k", f"job-{n}", {"n": n, "text": "x" * 200}) for n in range(records)])
        journal.save_snapshot(records, b"state")
    return path


def test_garbage_in_the_text_of_a_middle_page_is_noticed(tmp_path: Path) -> None:
    """The database itself finds nothing wrong with it: its pages are in order."""
    path = filled(tmp_path / "journal.db")
    data = bytearray(path.read_bytes())
    at = data.index(b"xxxxxxxxxxxxxxxx", len(data) // 2)
    data[at : at + 4] = b"oops"
    path.write_bytes(data)
    with open_journal(str(path)) as journal:
        assert journal.load_snapshot() == (3000, b"state")
        with pytest.raises(JournalCorrupt, match=r"record \d+ of the journal is damaged: `cotenant restore` a backup"):
            journal.verify()


def test_a_garbled_page_is_noticed(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal.db")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = os.urandom(4096)
    path.write_bytes(data)
    with pytest.raises(JournalCorrupt, match="damaged: `cotenant restore`"), open_journal(str(path)) as journal:
        journal.verify()


def test_checking_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    with open_journal(str(filled(tmp_path / "journal.db"))) as journal:
        assert journal.verify()
        assert not journal.verify(budget_s=0.0)


def test_records_of_before_there_were_checksums_are_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal.db", records=10)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cotenant_record SET crc = NULL")
    database.close()
    with open_journal(str(path)) as journal:
        assert journal.verify()
        assert len(list(journal.read())) == 10


@pytest.mark.parametrize("how", ["emptied", "older copy", "without its wal"])
def test_a_journal_that_has_lost_records_is_refused(tmp_path: Path, how: str) -> None:
    path = filled(tmp_path / "journal.db", records=10)
    shutil.copy(path, tmp_path / "older.db")
    journal = open_journal(str(path))
    journal.append([Entry("later")])
    if how == "without its wal":  # as after a kill
        shutil.copy(path, tmp_path / "killed.db")
        shutil.copy(tmp_path / "journal.db.mark", tmp_path / "killed.db.mark")
        journal.close()
        path = tmp_path / "killed.db"
    else:
        journal.close()
        path.write_bytes(b"" if how == "emptied" else (tmp_path / "older.db").read_bytes())
    with pytest.raises(JournalCorrupt, match=r"ends at record \d+, but it has held 11: .*`cotenant restore`"):
        open_journal(str(path))
    path.with_name(path.name + ".mark").unlink()
    with open_journal(str(path)) as journal:
        assert journal.last_seq in (0, 10)


def test_a_file_deleted_while_in_use_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with open_journal(str(path)) as journal:
        journal.append([Entry("k")])
        assert journal.trouble == ""
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(JournalError, match="was moved, deleted or replaced: stop the service and put it back"):
            journal.append([Entry("k")])
        assert "was moved" in journal.trouble
        (tmp_path / "elsewhere.db").rename(path)
        assert journal.append([Entry("k")]) == [2]
        assert journal.trouble == ""


@pytest.mark.parametrize("code", [sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN])
def test_read_only_is_not_called_full(tmp_path: Path, code: int) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        assert isinstance(journal, SqlJournal)
        dialect = journal._engine.dialect
        original = dialect.do_commit

        def do_commit(_connection: object) -> None:
            dialect.do_commit = original  # type: ignore[method-assign]
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = code
            raise error

        dialect.do_commit = do_commit  # type: ignore[method-assign]
        with pytest.raises(JournalReadOnly, match=r"though its disk is not full.* read-only"):
            journal.append([Entry("k")])
        assert "read-only" in journal.trouble
        until(lambda: journal.trouble == "")  # found out by itself
        assert journal.append([Entry("k")]) == [1]


def test_restore_checks_the_backup(tmp_path: Path) -> None:
    path = filled(tmp_path / "journal.db", records=100)
    data = bytearray(path.read_bytes())
    at = data.index(b"xxxxxxxxxxxxxxxx", len(data) // 2)
    data[at : at + 4] = b"oops"
    (tmp_path / "backup.db").write_bytes(data)
    with pytest.raises(JournalCorrupt, match="damaged"):
        restore(tmp_path / "backup.db", str(tmp_path / "new.db"))


@pytest.mark.slow
def test_postgresql_goes_away_and_comes_back(postgres: PostgresServer, postgres_url: str) -> None:
    """Refused meanwhile, within moments; then it goes on by itself, and nobody else can have the journal."""
    with open_journal(postgres_url) as journal:
        journal.append([Entry("one")])
        postgres.stop()
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(JournalAway, match="does not answer"):
                journal.append([Entry("lost")])
        assert time.monotonic() - began < 8.0  # one reconnection; the others do not wait
        assert journal.away
        assert "does not answer" in journal.trouble
        postgres.start()
        until(lambda: not journal.trouble)
        assert journal.append([Entry("two")]) == [2]
        assert [r.kind for r in journal.read()] == ["one", "two"]
        with pytest.raises(JournalError, match="in use by"):
            open_journal(postgres_url)


@pytest.mark.slow
def test_an_outage_is_noticed_while_nobody_writes(postgres: PostgresServer, postgres_url: str) -> None:
    with open_journal(postgres_url) as journal:
        postgres.stop()
        until(lambda: journal.away)
        postgres.start()
        until(lambda: not journal.away and not journal.trouble)


@pytest.mark.slow
def test_what_was_refused_is_taken_back(postgres: PostgresServer, postgres_url: str) -> None:
    """The commit took place, its answer was lost, and the server stayed away: the caller heard that it failed."""
    with open_journal(postgres_url) as journal:
        assert isinstance(journal, SqlJournal)
        journal.append([Entry("one")])
        dialect = journal._engine.dialect
        original = dialect.do_commit

        def do_commit(connection: object) -> None:
            dialect.do_commit = original  # type: ignore[method-assign]
            original(connection)  # type: ignore[arg-type]
            postgres.stop()
            connection.dbapi_connection.execute("SELECT 1")  # type: ignore[attr-defined]

        dialect.do_commit = do_commit  # type: ignore[method-assign]
        with pytest.raises(JournalAway):
            journal.append([Entry("doubtful")])
        postgres.start()
        until(lambda: not journal.trouble)
        assert journal.append([Entry("two")]) == [2]
        assert [r.kind for r in journal.read()] == ["one", "two"]


@pytest.mark.slow
def test_a_takeover_during_an_outage_is_noticed(postgres: PostgresServer, postgres_url: str) -> None:
    with open_journal(postgres_url) as first:
        postgres.stop()
        until(lambda: first.away)
        assert isinstance(first, SqlJournal)
        first._session._engine.dispose()
        first._session._connection.close()
        first._session.come_back = lambda: False  # type: ignore[method-assign]  # slower than the other one
        postgres.start()
        with open_journal(postgres_url) as second:
            second.append([Entry("theirs")])
        del first._session.come_back  # type: ignore[method-assign]
        until(lambda: "another process has taken over" in first.trouble)
        with pytest.raises(JournalError, match="taken over"):
            first.append([Entry("never")])
    with open_journal(postgres_url) as third:
        assert [r.kind for r in third.read()] == ["theirs"]
