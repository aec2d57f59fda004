"""Upgrades, refusals and addresses: what happens when a journal is opened."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from journal_postgres import PostgresServer

from cotenant.core.errors import InputError
from cotenant.journal import (
    Entry,
    JournalCorrupt,
    JournalTooNew,
    JournalUnavailable,
    MemoryJournal,
    open_journal,
    recover,
)
from cotenant.journal.migrations import VERSION

# Version 1 as it was, written out here once and for all. {blob} and {real} differ between the databases.
VERSION_1 = """
CREATE TABLE cotenant_meta (name VARCHAR(64) PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE cotenant_record (seq {integer} PRIMARY KEY, time_s {real} NOT NULL, kind TEXT NOT NULL,
    job TEXT NOT NULL, data TEXT NOT NULL);
CREATE TABLE cotenant_snapshot (seq {integer} PRIMARY KEY, state {blob} NOT NULL);
INSERT INTO cotenant_meta VALUES ('schema_version', '1');
INSERT INTO cotenant_record VALUES (4, 10.5, 'old', 'job-1', '{{"x":1}}'), (5, 11.5, 'old', 'job-2', '{{}}');
INSERT INTO cotenant_snapshot VALUES (4, {state});
"""
STATE = zlib.compress(b"state").hex()


def version_1_file(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executescript(VERSION_1.format(integer="INTEGER", real="REAL", blob="BLOB", state=f"x'{STATE}'"))
    database.close()


def check_upgraded(url: str) -> None:
    for opening in range(2):
        with open_journal(url, lambda: 20.0) as journal:
            assert journal.schema_version == VERSION > 1
            assert journal.last_seq == 5 + opening
            state, tail = recover(journal)
            assert state == b"state"
            assert [r.job for r in tail] == ["job-2"] + ["job-1"] * opening
            journal.append([Entry("new", "job-1")])
            found = [(r.seq, r.time_s, r.kind, r.data) for r in journal.read_job("job-1")]
            assert found[:2] == [(4, 10.5, "old", {"x": 1}), (6, 20.0, "new", {})]


def test_upgrade_sqlite(tmp_path: Path) -> None:
    version_1_file(tmp_path / "journal.db")
    check_upgraded(str(tmp_path / "journal.db"))


@pytest.mark.slow
def test_upgrade_postgresql(postgres: PostgresServer, postgres_url: str) -> None:
    schema = postgres_url.partition("%3D")[2]
    types = {"integer": "BIGINT", "real": "DOUBLE PRECISION", "blob": "BYTEA", "state": f"'\\x{STATE}'"}
    postgres.execute(f"SET search_path = {schema}; {VERSION_1.format(**types)}")
    check_upgraded(postgres_url)


def test_failed_upgrade_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.db"
    version_1_file(path)
    broken = ((), ("CREATE TABLE half_way (x INTEGER)", "CREATE NONSENSE"))
    with monkeypatch.context() as patch:
        patch.setattr("cotenant.journal.schema.MIGRATIONS", broken)
        with pytest.raises(Exception, match="NONSENSE"):
            open_journal(str(path))
    with sqlite3.connect(path) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert "half_way" not in names
    check_upgraded(str(path))


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    open_journal(str(path)).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cotenant_meta SET value = '99' WHERE name = 'schema_version'")
    database.close()
    with pytest.raises(JournalTooNew, match=rf"schema 99, this Cotenant knows up to {VERSION}: upgrade Cotenant$"):
        open_journal(str(path))
    with pytest.raises(JournalTooNew):  # and the file was let go again
        open_journal(str(path))


def test_damage_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with open_journal(str(path)) as journal:
        journal.append([Entry("k", "", {"n": n}) for n in range(5)])
        journal.save_snapshot(1, b"state")
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM cotenant_record WHERE seq = 3")
        database.execute("UPDATE cotenant_record SET data = '{' WHERE seq = 5")
        database.execute("UPDATE cotenant_snapshot SET state = x'00'")
    database.close()
    with open_journal(str(path)) as journal:
        with pytest.raises(JournalCorrupt, match=r"snapshot .* is damaged: `cotenant restore`"):
            journal.load_snapshot()
        with pytest.raises(JournalCorrupt, match="record 5 of the journal is damaged: `cotenant restore`"):
            list(journal.read())
        journal.save_snapshot(1, b"state")
        with pytest.raises(JournalCorrupt, match="record 3 of the journal is missing: `cotenant restore`"):
            list(recover(journal)[1])


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and long enough to be looked at " * 100)
    with pytest.raises(JournalCorrupt, match="damaged"):
        open_journal(str(tmp_path / "text"))
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    with pytest.raises(JournalCorrupt, match="of another program"):
        open_journal(str(tmp_path / "other.db"))


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("plain.db", "sqlite:///plain.db", f"sqlite:///{tmp_path}/plain.db", str(tmp_path / "plain.db")):
        with open_journal(url) as journal:
            journal.append([Entry("k")])
    assert journal.last_seq == 4
    assert isinstance(open_journal("memory:"), MemoryJournal)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://me:secret@host/db", "unknown kind of journal 'mysql'"),
        ("postgresql://me:secret@host:port/db", "bad journal address"),
        ("://", "bad journal address"),
        ("/", "is a folder"),
        ("/nowhere/at/all.db", "No such file or directory"),
        ("postgresql://me:secret@127.0.0.1:1/db?connect_timeout=2", "cannot open journal"),
    ],
)
def test_bad_addresses(url: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        open_journal(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_missing_schema(postgres: PostgresServer) -> None:
    with pytest.raises(JournalUnavailable, match="names a schema that does not exist"):
        open_journal(f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres?options=-csearch_path%3Dnope")


def test_imports_are_lazy() -> None:
    code = "import sys, cotenant.journal; sys.exit('sqlalchemy' in sys.modules or 'psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
