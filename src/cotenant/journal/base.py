"""The interface of a journal: an append-only list of records that survives a crash, plus one snapshot.

Nothing acknowledged is lost (FfDL, "store before acknowledge"): `append` returns only when its entries are on
disk. State is rebuilt by `recover`: the newest snapshot, then every record after it, in order.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cotenant.journal.errors import JournalCorrupt


@dataclass(frozen=True, slots=True)
class Entry:
    """What a caller wants remembered. `data` is JSON: string keys, no NaN; tuples come back as lists."""

    kind: str
    job: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored entry: `seq` counts 1, 2, 3, ... without gaps; `time_s` (Unix time) never goes back."""

    seq: int
    time_s: float
    kind: str
    job: str
    data: dict[str, Any]


class Journal(ABC):
    """One writing process, any number of threads. All methods may be called from any thread."""

    @property
    @abstractmethod
    def schema_version(self) -> int:
        """Version of the stored layout; opening upgrades an older one."""

    @property
    @abstractmethod
    def last_seq(self) -> int:
        """Number of the last durable record, 0 when there never was one; kept through pruning."""

    @property
    def trouble(self) -> str:
        """Why nothing can be written just now, as far as is known; empty when all is well. Asking is cheap."""
        return ""

    @property
    def away(self) -> bool:
        """Whether the trouble is that a server does not answer: appends are refused without trying."""
        return False

    @property
    def deposed(self) -> bool:
        """Whether another process has taken the journal over: this one will never write again."""
        return False

    def introduce(self, url: str) -> None:
        """Leave word, for those who wait for their turn, of where the service that writes answers."""
        return None

    def verify(self, budget_s: float = math.inf) -> bool:
        """Look for damage, newest records first: `JournalCorrupt` where there is some; False when time ran out."""
        return True

    @abstractmethod
    def submit(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """Queue the entries of one atomic append; the future gives their numbers once they are durable.

        Appends that wait together share one commit. An entry that cannot be stored raises `BadEntry` here.
        Cancelling the future takes the entries back if they were not yet being written.
        """

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """Store all entries or none; returns their numbers once they are on disk."""
        return self.submit(entries).result()

    async def append_async(self, entries: Sequence[Entry]) -> list[int]:
        """`append` for coroutines: the event loop goes on while the disk works."""
        return await asyncio.wrap_future(self.submit(entries))

    @abstractmethod
    def read(self, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """Durable records with `seq > after` in order, at most `limit`; pruned ones are left out."""

    @abstractmethod
    def read_job(self, job: str) -> Iterator[Record]:
        """All records of one job, in order."""

    @abstractmethod
    def save_snapshot(self, seq: int, state: bytes) -> None:
        """Keep `state` as the sum of the records up to `seq`, instead of the snapshot before it."""

    @abstractmethod
    def load_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot and the number of the last record in it."""

    @abstractmethod
    def prune(self, before_s: float, keep: Collection[str] = ()) -> int:
        """Delete the records older than `before_s` that the snapshot covers, but none of the jobs in `keep`.

        Returns how many were deleted. Without a snapshot nothing is: what replay needs always stays.
        """

    @abstractmethod
    def backup(self, path: str | Path) -> None:
        """Write a consistent copy to a new SQLite file at `path` while appends go on; it opens as a journal."""

    @abstractmethod
    def close(self) -> None:
        """Write what is queued, then let go of the journal. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_snapshot(seq: int, newest: int, last_seq: int) -> None:
    """A snapshot may not be older than the one it replaces, nor claim records that do not exist."""
    if not newest <= seq <= last_seq:
        raise ValueError(f"snapshot at record {seq}: must lie between {newest} and {last_seq}")


def recover(journal: Journal) -> tuple[bytes | None, Iterator[Record]]:
    """The snapshot, if any, and the records to replay on top of it; a missing record is an error."""
    snapshot = journal.load_snapshot()
    seq, state = snapshot if snapshot else (0, None)
    return state, _gapless(journal.read(seq), seq, journal.last_seq)


def _gapless(records: Iterator[Record], seq: int, last_seq: int) -> Iterator[Record]:
    for record in records:
        seq += 1
        if record.seq != seq:
            break
        yield record
    else:
        if seq >= last_seq:
            return
        seq += 1
    raise JournalCorrupt(f"record {seq} of the journal is missing: `cotenant restore` a backup")
