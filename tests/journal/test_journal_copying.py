"""Backups move between databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cotenant.core.errors import InputError
from cotenant.journal import Entry, Journal, JournalUnavailable, open_journal
from cotenant.journal.copying import restore


def fill(journal: Journal) -> None:
    journal.append([Entry("k", f"job-{n % 7}", {"n": n}) for n in range(5000)])
    journal.save_snapshot(4000, b"state")
    journal.prune(before_s=1e12, keep=["job-1"])
    journal.append([Entry("last")])


@pytest.mark.slow
def test_sqlite_to_postgresql_and_back(tmp_path: Path, postgres_url: str) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        fill(journal)
        records = list(journal.read())
        journal.backup(tmp_path / "one.db")
    assert restore(tmp_path / "one.db", postgres_url) == 5001
    with open_journal(postgres_url) as journal:
        assert list(journal.read()) == records
        journal.backup(tmp_path / "two.db")
    with open_journal(str(tmp_path / "two.db")) as journal:
        assert list(journal.read()) == records
        assert journal.load_snapshot() == (4000, b"state")
        assert journal.append([Entry("k")]) == [5002]


def test_restore_into_a_used_journal_is_refused(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        fill(journal)
        journal.backup(tmp_path / "backup.db")
    with pytest.raises(InputError, match="is not empty: restore into a new one"):
        restore(tmp_path / "backup.db", str(tmp_path / "journal.db"))
    with pytest.raises(InputError, match="there is no backup"):
        restore(tmp_path / "nothing.db", str(tmp_path / "new.db"))
    assert restore(tmp_path / "backup.db", str(tmp_path / "new.db")) == 5001


def test_backup_where_nothing_can_be_written(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        with pytest.raises(JournalUnavailable, match="No such file or directory"):
            journal.backup(tmp_path / "nowhere" / "copy.db")
        assert journal.append([Entry("k")]) == [1]


def test_backup_is_sound(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        fill(journal)
        journal.backup(tmp_path / "backup.db")
    with sqlite3.connect(tmp_path / "backup.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
