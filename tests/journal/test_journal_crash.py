"""`kill -9` of a process that writes: what was acknowledged is there, and no call is there in part."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from journal_children import ForkServer, batch

from cotenant.journal import Record, open_journal, recover

KILLS = 22
KILLS_POSTGRES = 6

Ack = tuple[int, int, int]


def run_and_kill(fork_server: ForkServer, url: str, seed: int, acks_wanted: int) -> list[Ack]:
    """Start a writer, kill it after some acknowledgements, and return all that it got out."""
    child = fork_server.start("write_until_killed", url, seed)
    acks: list[Ack] = []
    try:
        while len(acks) < acks_wanted:
            acks.append(child.pipe.recv())
    finally:
        child.kill()
    with suppress(EOFError, ConnectionResetError):
        while True:
            acks.append(child.pipe.recv())
    return acks


def check(records: list[Record], seed: int, acks: list[Ack]) -> None:
    calls: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in records:
        if record.data["seed"] == seed:
            calls[record.data["writer"], record.data["call"]].append(record)
    for me, call, size in acks:
        assert len(calls[me, call]) == size, "acknowledged and lost"
    for (me, call), found in calls.items():
        size = found[0].data["size"]
        assert [r.seq for r in found] == list(range(found[0].seq, found[0].seq + size)), "torn"
        assert [(r.kind, r.job, r.data) for r in found] == [
            (e.kind, e.job, e.data) for e in batch(seed, me, call, size)
        ]


def kill_and_check(fork_server: ForkServer, url: str, kills: int) -> None:
    rng = random.Random(20240)
    total = 0
    for seed in range(kills):
        acks = run_and_kill(fork_server, url, seed, acks_wanted=rng.choice((0, 1, 5, rng.randrange(150))))
        with open_journal(url) as journal:
            records = list(journal.read())
            assert [r.seq for r in records] == list(range(1, journal.last_seq + 1))
            check(records, seed, acks)
            state, tail = recover(journal)
            covered = int(state or b"0")
            assert [r.seq for r in tail] == list(range(covered + 1, journal.last_seq + 1))
            total += len(acks)
    assert total > kills


def test_kill_sqlite(fork_server: ForkServer, tmp_path: Path) -> None:
    kill_and_check(fork_server, str(tmp_path / "journal.db"), KILLS)


@pytest.mark.slow
def test_kill_postgresql(fork_server: ForkServer, postgres_url: str) -> None:
    kill_and_check(fork_server, postgres_url, KILLS_POSTGRES)


@pytest.mark.parametrize(("when", "calls"), [("before", 1), ("after", 2)])
def test_kill_around_commit(fork_server: ForkServer, tmp_path: Path, when: str, calls: int) -> None:
    """The two exact points: a call that was not committed is gone, one that was is whole."""
    url = str(tmp_path / "journal.db")
    child = fork_server.start("die_around_commit", url, when)
    assert child.pipe.recv() == [1, 2, 3]
    with pytest.raises((EOFError, ConnectionResetError)):
        child.pipe.recv()
    with open_journal(url) as journal:
        assert [r.data["call"] for r in recover(journal)[1]] == [0, 0, 0, 1, 1, 1][: 3 * calls]
        assert journal.append(batch(0, 0, 9, 1)) == [3 * calls + 1]
