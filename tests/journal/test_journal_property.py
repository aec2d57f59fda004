"""Any interleaving of append, snapshot, prune, full disk and reopen gives back exactly what was acknowledged."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cotenant.journal import BadEntry, Entry, Journal, MemoryJournal, MemoryStore, open_journal, recover

NAMES = st.sampled_from(["", "a", "b", "ü☃"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ENTRIES = st.lists(
    st.builds(Entry, st.sampled_from(["x", "y"]), NAMES, st.dictionaries(st.text(), JSON, max_size=3)),
    max_size=4,
)

Seen = tuple[int, float, str, str, dict[str, Any]]


class JournalMachine(RuleBasedStateMachine):
    """A plain list beside the journal says what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.model: list[Seen] = []
        self.last_seq = 0
        self.snapshot: tuple[int, bytes] | None = None
        self.journal = self.open()

    def open(self) -> Journal:
        raise NotImplementedError

    def acknowledge(self, entries: list[Entry], seqs: list[int]) -> None:
        assert seqs == list(range(self.last_seq + 1, self.last_seq + 1 + len(entries)))
        self.last_seq += len(entries)
        self.model += [(s, self.now_s, e.kind, e.job, e.data) for s, e in zip(seqs, entries, strict=True)]

    @rule(entries=ENTRIES)
    def append(self, entries: list[Entry]) -> None:
        self.acknowledge(entries, self.journal.append(entries))

    @rule(calls=st.lists(ENTRIES, max_size=5))
    def append_together(self, calls: list[list[Entry]]) -> None:
        futures = [self.journal.submit(entries) for entries in calls]
        wait(futures)
        for entries, future in zip(calls, futures, strict=True):
            self.acknowledge(entries, future.result())

    @rule(entries=ENTRIES)
    def append_bad(self, entries: list[Entry]) -> None:
        with pytest.raises(BadEntry):
            self.journal.append([*entries, Entry("x", "a", {"x": float("inf")})])

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(back=st.integers(0, 5), state=st.binary(max_size=50))
    def save_snapshot(self, back: int, state: bytes) -> None:
        seq = max(self.last_seq - back, self.snapshot[0] if self.snapshot else 0)
        self.journal.save_snapshot(seq, state)
        self.snapshot = seq, state

    @precondition(lambda self: self.snapshot)
    @rule(age_s=st.sampled_from([-1.0, 50.0, 150.0]), keep=st.sets(NAMES, max_size=2))
    def prune(self, age_s: float, keep: set[str]) -> None:
        assert self.snapshot is not None
        covered, before_s = self.snapshot[0], self.now_s - age_s
        kept = [row for row in self.model if row[0] > covered or row[1] >= before_s or row[3] in keep]
        assert self.journal.prune(before_s, keep) == len(self.model) - len(kept)
        self.model = kept

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = self.open()

    @invariant()
    def all_is_there(self) -> None:
        rows = [(r.seq, r.time_s, r.kind, r.job, r.data) for r in self.journal.read()]
        assert rows == self.model
        assert self.journal.last_seq == self.last_seq
        state, tail = recover(self.journal)
        covered = self.snapshot[0] if self.snapshot else 0
        assert state == (self.snapshot[1] if self.snapshot else None)
        assert [r.seq for r in tail] == list(range(covered + 1, self.last_seq + 1))

    @invariant()
    def jobs_are_told_apart(self) -> None:
        for job in ("", "a"):
            assert [r.seq for r in self.journal.read_job(job)] == [row[0] for row in self.model if row[3] == job]

    def teardown(self) -> None:
        self.journal.close()


class MemoryMachine(JournalMachine):
    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__()

    def open(self) -> Journal:
        return MemoryJournal(self.store, lambda: self.now_s)


class SqliteMachine(JournalMachine):
    def __init__(self) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # flushing to disk is not what is tested
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-journal-", dir=memory))
        super().__init__()

    def open(self) -> Journal:
        return open_journal(str(self.folder / "journal.db"), lambda: self.now_s)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def _settings(examples: int) -> settings:
    slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=slow_is_fine)


TestMemoryProperty = MemoryMachine.TestCase
TestMemoryProperty.settings = _settings(30)
TestSqliteProperty = SqliteMachine.TestCase
TestSqliteProperty.settings = _settings(20)
