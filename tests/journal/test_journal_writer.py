"""The writer's bad days: a poisoned entry, a lost server, a takeover, a disk that fails."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from journal_postgres import PostgresServer, cut

from cotenant.journal import BadEntry, Entry, Journal, JournalBusy, JournalCorrupt, JournalError, JournalFull
from cotenant.journal import open_journal as open_any
from cotenant.journal.sql import SqlJournal

REFUSE_POISON = (
    "CREATE TRIGGER poison BEFORE INSERT ON cotenant_record WHEN NEW.kind = 'poison'"
    " BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
)


def open_sql(url: str | Path) -> SqlJournal:
    journal = open_any(str(url))
    assert isinstance(journal, SqlJournal)
    return journal


@contextmanager
def held(journal: SqlJournal) -> Iterator[None]:
    """Keep the writer busy, so that what is submitted meanwhile ends up in one batch."""
    started, release = threading.Event(), threading.Event()

    def work(_connection: object) -> None:
        started.set()
        assert release.wait(20)

    thread = threading.Thread(target=journal._writer.call, args=(work,))
    thread.start()
    assert started.wait(20)
    yield
    release.set()
    thread.join()


def count_commits(journal: SqlJournal) -> list[str]:
    """A list that grows with every flush of the database."""
    commits: list[str] = []
    dialect = journal._engine.dialect
    original = dialect.do_commit

    def do_commit(connection: Any) -> None:
        commits.append("commit")
        original(connection)

    dialect.do_commit = do_commit  # type: ignore[method-assign]
    return commits


def test_one_commit_for_all_who_wait(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        commits = count_commits(journal)
        with held(journal):
            futures = [journal.submit([Entry("k")]) for _ in range(64)]
        assert [f.result(20) for f in futures] == [[n] for n in range(1, 65)]
        assert len(commits) == 2  # that of `held`, and one for all


def test_batches_are_bounded(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        commits = count_commits(journal)
        with held(journal):
            futures = [journal.submit([Entry("k", "", {"x": "y" * (4 << 20)})]) for _ in range(5)]
        assert [f.result(20) for f in futures] == [[n] for n in range(1, 6)]
        assert len(commits) == 1 + 3


def test_poison_hurts_only_its_caller(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        with sqlite3.connect(tmp_path / "journal.db") as other:
            other.execute(REFUSE_POISON)
        other.close()
        with held(journal):
            before = [journal.submit([Entry("k"), Entry("k")]) for _ in range(3)]
            bad = journal.submit([Entry("k"), Entry("poison")])
            after = [journal.submit([Entry("k")]) for _ in range(3)]
        with pytest.raises(BadEntry, match="refused an entry: no poison here"):
            bad.result(20)
        assert [f.result(20) for f in [*before, *after]] == [[1, 2], [3, 4], [5, 6], [7], [8], [9]]
        assert [r.kind for r in journal.read()] == ["k"] * 9


def test_cancelled_before_it_was_written(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        with held(journal):
            first, second = journal.submit([Entry("first")]), journal.submit([Entry("second")])
            assert first.cancel()
        assert second.result(20) == [1]
        assert [r.kind for r in journal.read()] == ["second"]


def test_commit_is_flushed(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        modes = [
            journal._writer.call(lambda c, name=name: c.exec_driver_sql(f"PRAGMA {name}").scalar())
            for name in ("journal_mode", "synchronous")
        ]
        assert modes == ["wal", 2]  # 2 is FULL


def test_file_size_limit(tmp_path: Path) -> None:
    """A quota shows up as a failed write, not as a full disk; it means the same."""
    with open_sql(tmp_path / "journal.db") as journal:
        journal.append([Entry("before")])
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, old[1]))
        try:
            with pytest.raises(JournalFull, match="no space left"):
                journal.append([Entry("refused", "", {"x": "y" * 300_000})])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        assert journal.append([Entry("after")]) == [2]
        assert [r.kind for r in journal.read()] == ["before", "after"]


def test_locked_by_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.journal.sqlite.BUSY_TIMEOUT_MS", 10)
    with open_sql(tmp_path / "journal.db") as journal:
        other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalBusy, match="another program keeps journal"):
            journal.append([Entry("k")])
        other.close()
        assert journal.append([Entry("k")]) == [1]


def failing(journal: SqlJournal, code: int) -> None:
    """Let the next commit fail the way SQLite would report it."""
    dialect = journal._engine.dialect
    original = dialect.do_commit

    def do_commit(_connection: Any) -> None:
        dialect.do_commit = original  # type: ignore[method-assign]
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    dialect.do_commit = do_commit  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(sqlite3.SQLITE_IOERR_FSYNC, JournalError), (sqlite3.SQLITE_CORRUPT, JournalCorrupt)],
)
def test_stops_when_the_disk_fails(tmp_path: Path, code: int, kind: type[JournalError]) -> None:
    """After a failed fsync nobody knows what is on disk: no further append may claim to be."""
    with open_sql(tmp_path / "journal.db") as journal:
        journal.append([Entry("k")])
        failing(journal, code)
        for _ in range(2):
            with pytest.raises(kind) as caught:
                journal.append([Entry("k")])
            assert type(caught.value) is kind
            assert "\n" not in str(caught.value)
    with open_sql(tmp_path / "journal.db") as journal:
        assert journal.last_seq == 1


def test_failed_commit_is_rolled_back(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        failing(journal, sqlite3.SQLITE_FULL)
        with pytest.raises(JournalFull):
            journal.append([Entry("refused")])
        assert journal.append([Entry("k")]) == [1]
        assert [r.kind for r in journal.read()] == ["k"]


def test_each_caller_gets_an_exception_of_its_own(tmp_path: Path) -> None:
    with open_sql(tmp_path / "journal.db") as journal:
        with held(journal):
            futures = [journal.submit([Entry("k")]) for _ in range(3)]
            journal._writer._clock = lambda: 1 / 0
        errors = [f.exception(20) for f in futures]
        assert len({id(error) for error in errors}) == 3
        assert all(isinstance(error, JournalError) for error in errors)


@pytest.mark.slow
def test_reconnects_to_postgresql(postgres: PostgresServer, postgres_url: str) -> None:
    with open_sql(postgres_url) as journal:
        journal.append([Entry("one")])
        cut(postgres, postgres_url)
        assert journal.append([Entry("two"), Entry("three")]) == [2, 3]
        cut(postgres, postgres_url)
        journal.save_snapshot(2, b"two")
        assert [r.kind for r in journal.read()] == ["one", "two", "three"]
        with pytest.raises(JournalBusy):
            open_any(postgres_url)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_connection_lost_in_commit(postgres: PostgresServer, postgres_url: str, committed: bool) -> None:
    """Whether the commit took place or not, the call is stored exactly once."""
    with open_sql(postgres_url) as journal:
        journal.append([Entry("one")])
        dialect = journal._engine.dialect
        original = dialect.do_commit

        def do_commit(connection: Any) -> None:
            dialect.do_commit = original  # type: ignore[method-assign]
            if committed:
                original(connection)
            cut(postgres, postgres_url)
            connection.dbapi_connection.execute("SELECT 1")  # notices, as a commit without answer would

        dialect.do_commit = do_commit  # type: ignore[method-assign]
        assert journal.append([Entry("two"), Entry("three")]) == [2, 3]
        assert journal.append([Entry("four")]) == [4]
        assert [(r.seq, r.kind) for r in journal.read()] == list(enumerate(["one", "two", "three", "four"], 1))


@pytest.mark.slow
def test_stops_after_a_takeover(postgres: PostgresServer, postgres_url: str) -> None:
    first: Journal
    with open_sql(postgres_url) as first:
        first.append([Entry("one")])
        cut(postgres, postgres_url)
        with open_any(postgres_url) as second:
            second.append([Entry("two")])
        for _ in range(2):
            with pytest.raises(JournalError, match="another process has taken over"):
                first.append([Entry("never")])
        with pytest.raises(JournalError, match="another process has taken over"):
            first.save_snapshot(1, b"")
    with open_any(postgres_url) as third:
        assert [r.kind for r in third.read()] == ["one", "two"]


@pytest.mark.slow
def test_poison_on_postgresql(postgres: PostgresServer, postgres_url: str) -> None:
    schema = postgres_url.partition("%3D")[2]
    with open_sql(postgres_url) as journal:
        postgres.execute(f"ALTER TABLE {schema}.cotenant_record ADD CHECK (kind <> 'poison')")
        with held(journal):
            futures: list[Future[list[int]]] = [journal.submit([Entry(k)]) for k in ("a", "poison", "b")]
        with pytest.raises(BadEntry):
            futures[1].result(20)
        assert [futures[0].result(20), futures[2].result(20)] == [[1], [2]]
