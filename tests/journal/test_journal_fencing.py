"""Exactly one process writes, and its hold ends with it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from journal_children import ForkServer

from cotenant.journal import Entry, JournalBusy, JournalError, open_journal


def refused_until_killed(fork_server: ForkServer, url: str) -> None:
    holder = fork_server.start("hold", url)
    try:
        assert holder.pipe.recv() == "open"
        with pytest.raises(JournalBusy, match=f"in use by .*process {holder.pid}.*: stop that service"):
            open_journal(url)
    finally:
        holder.kill()
    with pytest.raises(EOFError):
        holder.pipe.recv()
    open_journal(url).close()


def test_second_process_sqlite(fork_server: ForkServer, tmp_path: Path) -> None:
    refused_until_killed(fork_server, str(tmp_path / "journal.db"))


@pytest.mark.slow
def test_second_process_postgresql(fork_server: ForkServer, postgres_url: str) -> None:
    refused_until_killed(fork_server, postgres_url)


def test_other_name_of_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with open_journal(str(tmp_path / "journal.db")), pytest.raises(JournalBusy, match="already open"):
        open_journal(str(tmp_path / "link" / "journal.db"))


def test_refused_process_hears_who_holds_it(fork_server: ForkServer, tmp_path: Path) -> None:
    url = str(tmp_path / "journal.db")
    with open_journal(url) as journal:
        kind, text = fork_server.start("hold", url).pipe.recv()
        assert kind == "JournalBusy"
        assert f"in use by process {os.getpid()}" in text
        assert journal.append([Entry("k")]) == [1]


def test_forked_child(tmp_path: Path) -> None:
    """A child cannot write through its parent's journal, nor does it keep the lock when the parent lets go."""
    url = str(tmp_path / "journal.db")
    journal = open_journal(url)
    go, stay = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            journal.append([Entry("k")])
        except JournalError as error:
            os.close(stay)
            os.read(go, 1)  # until the parent has finished
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    os.close(go)
    journal.close()
    open_journal(url).close()
    os.close(stay)
    assert os.waitpid(child, 0)[1] == 0


def test_files_are_private(tmp_path: Path) -> None:
    with open_journal(str(tmp_path / "journal.db")) as journal:
        journal.append([Entry("k")])
        journal.backup(tmp_path / "backup.db")
        names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert names == dict.fromkeys(
        ["backup.db", "journal.db", "journal.db-shm", "journal.db-wal", "journal.db.lock", "journal.db.mark"], 0o600
    )
