"""The contract of a journal, as tests. Whoever writes one can run it:

    class TestMine(JournalContract):
        @pytest.fixture
        def journal_factory(self, tmp_path):
            return lambda clock=time.time: MyJournal(tmp_path / "x", clock)

Every call of the factory opens the *same* storage, empty at the start of a test. Override `no_space` as well,
where a full disk can be played.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from cotenant.core.errors import InputError
from cotenant.journal import (
    BadEntry,
    Entry,
    Journal,
    JournalBusy,
    JournalError,
    JournalFull,
    Record,
    open_journal,
    recover,
)

CALLERS = 64
JSON_VALUES: dict[str, Any] = {
    "text": "µ \N{SNOWMAN} \x00 \ud800 'quote' %s ? :name",
    "numbers": [0, -1, 2**70, 0.1, 1e300, -0.0],
    "nested": {"": None, "yes": True, "list": [[], {}]},
}


class JournalFactory(Protocol):
    """Opens the storage of the test, which only one journal at a time may have open."""

    def __call__(self, clock: Callable[[], float] = time.time) -> Journal:
        """Open it; records get their times from `clock`."""


class JournalContract:
    """What every journal promises."""

    @pytest.fixture
    def journal_factory(self) -> JournalFactory:
        """To be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def no_space(self) -> Callable[[Journal], AbstractContextManager[None]]:
        """To be overridden: leaves the given journal no space to write while the context lasts."""
        pytest.skip("this journal cannot play a full disk")

    @pytest.fixture
    def journal(self, journal_factory: JournalFactory) -> Iterator[Journal]:
        """An empty journal."""
        with journal_factory() as journal:
            yield journal

    def test_starts_empty(self, journal: Journal) -> None:
        """Nothing is in a new journal, and nothing can be asked of it that fails."""
        assert journal.last_seq == 0
        assert list(journal.read()) == []
        assert list(journal.read_job("a")) == []
        assert journal.load_snapshot() is None
        assert journal.prune(before_s=1e12) == 0
        assert journal.schema_version >= 1
        assert journal.append([]) == []

    def test_gives_back_what_was_stored(self, journal: Journal) -> None:
        """Records are numbered without gaps and hold the same values, of any JSON type."""
        assert journal.append([Entry("a", "job-1", JSON_VALUES), Entry("b")]) == [1, 2]
        assert journal.append([Entry("ü", "job-☃", {"x": 1})]) == [3]
        first, second, third = journal.read()
        assert (first.seq, first.kind, first.job, first.data) == (1, "a", "job-1", JSON_VALUES)
        assert (second.seq, second.kind, second.job, second.data) == (2, "b", "", {})
        assert (third.seq, third.kind, third.job, third.data) == (3, "ü", "job-☃", {"x": 1})
        assert journal.last_seq == 3

    def test_a_stored_record_does_not_change(self, journal: Journal) -> None:
        """Neither through the dictionary that was given nor through the one that is read."""
        data = {"x": [1]}
        journal.append([Entry("a", "", data)])
        data["x"].append(2)
        next(journal.read()).data["x"].append(3)
        assert next(journal.read()).data == {"x": [1]}

    def test_survives_reopening(self, journal_factory: JournalFactory) -> None:
        """Records, numbers and the snapshot are there after a restart."""
        with journal_factory() as journal:
            journal.append([Entry("a", "j", {"n": n}) for n in range(5)])
            journal.save_snapshot(3, b"state")
            before = list(journal.read())
        with journal_factory() as journal:
            assert list(journal.read()) == before
            assert journal.load_snapshot() == (3, b"state")
            assert journal.append([Entry("b")]) == [6]

    @pytest.mark.parametrize(
        "bad",
        [
            Entry("", "j"),
            Entry("a\0b"),
            Entry("a", "j\0"),
            Entry("a", "\ud800"),
            Entry("a", "j" * 600),
            Entry("a", "j", {"x": object()}),
            Entry("a", "j", {"x": float("nan")}),
            Entry("a", "j", {"x": "y" * (17 << 20)}),
        ],
        ids=["no-kind", "nul-kind", "nul-job", "surrogate-job", "long-job", "not-json", "nan", "huge"],
    )
    def test_refuses_what_cannot_be_stored(self, journal: Journal, bad: Entry) -> None:
        """A bad entry takes its whole call with it, and nothing else."""
        with pytest.raises(BadEntry) as caught:
            journal.append([Entry("good"), bad])
        assert "\n" not in str(caught.value)
        assert journal.append([Entry("good")]) == [1]

    def test_concurrent_callers(self, journal: Journal) -> None:
        """64 threads: every call whole, in the order of its caller, no number twice."""
        calls = 5
        seqs: dict[tuple[int, int], list[int]] = {}

        def caller(me: int) -> None:
            for call in range(calls):
                entries = [Entry("k", f"job-{me}", {"call": call, "i": i}) for i in range(1 + me % 3)]
                seqs[me, call] = journal.append(entries)

        threads = [threading.Thread(target=caller, args=(me,)) for me in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = {record.seq: record for record in journal.read()}
        assert sorted(itertools.chain.from_iterable(seqs.values())) == list(range(1, journal.last_seq + 1))
        for (me, call), numbers in seqs.items():
            assert numbers == list(range(numbers[0], numbers[0] + 1 + me % 3))
            for i, seq in enumerate(numbers):
                assert (records[seq].job, records[seq].data) == (f"job-{me}", {"call": call, "i": i})
        for me in range(CALLERS):
            assert [r.data["call"] for r in journal.read_job(f"job-{me}") if not r.data["i"]] == list(range(calls))

    def test_concurrent_coroutines(self, journal: Journal) -> None:
        """An event loop can wait for many appends at once."""

        async def main() -> list[list[int]]:
            return await asyncio.gather(*(journal.append_async([Entry("k"), Entry("k")]) for _ in range(CALLERS)))

        assert sorted(asyncio.run(main())) == [[n, n + 1] for n in range(1, 2 * CALLERS, 2)]

    def test_reads_from_anywhere(self, journal: Journal) -> None:
        """`after` and `limit`, over more records than fit a page."""
        journal.append([Entry("k", "even" if n % 2 else "odd", {"n": n}) for n in range(2500)])
        assert [r.seq for r in journal.read()] == list(range(1, 2501))
        assert [r.seq for r in journal.read(after=2490)] == list(range(2491, 2501))
        assert [r.seq for r in journal.read(after=10, limit=1500)] == list(range(11, 1511))
        assert [r.seq for r in journal.read(limit=0)] == []
        assert [r.seq for r in journal.read(after=2500)] == []
        assert [r.seq for r in journal.read_job("odd")] == list(range(1, 2501, 2))

    def test_snapshot(self, journal: Journal) -> None:
        """Only the newest is kept; it never goes back nor runs ahead of the records."""
        journal.append([Entry("k")] * 4)
        journal.save_snapshot(2, b"two")
        journal.save_snapshot(4, bytes(range(256)) * 1000)
        journal.save_snapshot(4, b"")
        assert journal.load_snapshot() == (4, b"")
        for seq in (3, 5):
            with pytest.raises(ValueError, match="snapshot at record"):
                journal.save_snapshot(seq, b"x")
        assert journal.load_snapshot() == (4, b"")

    def test_recover(self, journal: Journal) -> None:
        """Replay is the snapshot and what came after it."""
        assert recover(journal)[0] is None
        journal.append([Entry("k", "", {"n": n}) for n in range(10)])
        assert [r.data["n"] for r in recover(journal)[1]] == list(range(10))
        journal.save_snapshot(7, b"seven")
        state, records = recover(journal)
        assert state == b"seven"
        assert [r.data["n"] for r in records] == [7, 8, 9]

    def test_prune(self, journal_factory: JournalFactory) -> None:
        """Goes what is old and covered by the snapshot and of no job to keep; numbers are not used again."""
        now_s = 0.0
        with journal_factory(lambda: now_s) as journal:
            for step_s in (100.0, 200.0, 300.0):
                now_s = step_s
                journal.append([Entry("k", "alive"), Entry("k", "done")])
            assert journal.prune(before_s=1000.0) == 0
            journal.save_snapshot(5, b"five")
            assert journal.prune(before_s=200.0, keep=["alive"]) == 1
            assert [r.seq for r in journal.read()] == [1, 3, 4, 5, 6]
            assert journal.prune(before_s=1000.0) == 4
            assert [r.seq for r in journal.read()] == [6]
            journal.save_snapshot(6, b"six")
            assert journal.prune(before_s=1000.0) == 1
            assert list(journal.read()) == []
        with journal_factory(lambda: 50.0) as journal:
            assert journal.last_seq == 6
            assert journal.append([Entry("k")]) == [7]
            assert recover(journal)[0] == b"six"
            assert [r.time_s for r in journal.read()] == [300.0]

    def test_times_never_go_back(self, journal_factory: JournalFactory) -> None:
        """Also when the clock does, and over a restart."""
        clock = iter([5.0, 3.0, 6.5]).__next__
        with journal_factory(clock) as journal:
            for _ in range(3):
                journal.append([Entry("k")])
        with journal_factory(lambda: 1.0) as journal:
            journal.append([Entry("k")])
            assert [r.time_s for r in journal.read()] == [5.0, 5.0, 6.5, 6.5]

    def test_backup_while_appending(self, journal: Journal, tmp_path: Path) -> None:
        """The copy is a journal: all that was acknowledged before, whole calls only, and the snapshot."""
        journal.append([Entry("k", "j", JSON_VALUES)] * 3)
        journal.save_snapshot(2, b"two")
        started, stop = threading.Event(), threading.Event()

        def keep_writing() -> None:
            while not stop.is_set():
                journal.append([Entry("k", "j", {"x": "y" * 1000})] * 3)
                started.set()

        writer = threading.Thread(target=keep_writing)
        writer.start()
        try:
            assert started.wait(20)
            acknowledged = journal.last_seq
            journal.backup(tmp_path / "copy.db")
        finally:
            stop.set()
            writer.join()
        with pytest.raises(InputError, match="exists already"):
            journal.backup(tmp_path / "copy.db")
        assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("copy")) == ["copy.db"]
        with open_journal(str(tmp_path / "copy.db")) as copy:
            records = list(copy.read())
            assert records == list(journal.read(limit=len(records)))
            assert len(records) >= acknowledged
            assert len(records) % 3 == 0
            assert copy.load_snapshot() == (2, b"two")
            assert copy.append([Entry("k")]) == [len(records) + 1]

    def test_one_at_a_time(self, journal_factory: JournalFactory) -> None:
        """A second one is refused until the first is closed."""
        with journal_factory():
            with pytest.raises(JournalBusy) as caught:
                journal_factory()
            assert "\n" not in str(caught.value)
        journal_factory().close()

    def test_closed(self, journal_factory: JournalFactory, tmp_path: Path) -> None:
        """What was queued is written; afterwards every use is refused, and closing again does nothing."""
        journal = journal_factory()
        futures = [journal.submit([Entry("k")]) for _ in range(100)]
        journal.close()
        journal.close()
        assert [future.result(0) for future in futures] == [[n] for n in range(1, 101)]
        uses: list[Callable[[], object]] = [
            lambda: journal.append([Entry("k")]),
            lambda: list(journal.read()),
            lambda: list(journal.read_job("j")),
            lambda: journal.save_snapshot(1, b""),
            journal.load_snapshot,
            lambda: journal.prune(0.0),
            lambda: journal.backup(tmp_path / "never.db"),
        ]
        for use in uses:
            with pytest.raises(JournalError):
                use()

    def test_no_space(
        self, journal_factory: JournalFactory, no_space: Callable[[Journal], AbstractContextManager[None]]
    ) -> None:
        """A full disk refuses appends whole, loses nothing, and is forgotten when there is space again."""
        with journal_factory() as journal:
            journal.append([Entry("before", "", {"n": n}) for n in range(10)])
            before: list[Record] = list(journal.read())
            with no_space(journal):
                for _ in range(3):
                    with pytest.raises(JournalFull):
                        journal.append([Entry("refused", "", {"x": "y" * 5000})] * 20)
                assert list(journal.read()) == before
                assert journal.last_seq == 10
            assert journal.append([Entry("after", "", {"x": "y" * 5000})] * 20) == list(range(11, 31))
        with journal_factory() as journal:
            assert [r.kind for r in recover(journal)[1]] == ["before"] * 10 + ["after"] * 20
