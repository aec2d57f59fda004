"""Exactly one process writes, and its hold ends with it."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest
from journal_children import ForkServer
from journal_postgres import PostgresServer, cut

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


@pytest.mark.slow
def test_a_hung_process_loses_the_journal(fork_server: ForkServer, postgres_url: str) -> None:
    """The server ends the session of whoever says nothing: nobody has to find out whether it is dead."""
    holder = fork_server.start("hold", postgres_url)
    try:
        assert holder.pipe.recv() == "open"
        os.kill(holder.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 30
        while True:
            try:
                open_journal(postgres_url).close()
                break
            except JournalBusy:
                assert time.monotonic() < deadline
    finally:
        holder.kill()


@pytest.mark.slow
def test_who_waits_knows_the_leader_and_who_is_deposed_knows_it(postgres: PostgresServer, postgres_url: str) -> None:
    with open_journal(postgres_url) as first:
        first.introduce("http://first")
        with pytest.raises(JournalBusy) as busy:
            open_journal(postgres_url)
        assert busy.value.leader == "http://first"
        assert not first.deposed
        cut(postgres, postgres_url)
        with open_journal(postgres_url):
            deadline = time.monotonic() + 30
            while not first.deposed:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with pytest.raises(JournalError, match="taken over"):
                first.append([Entry("never")])


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
