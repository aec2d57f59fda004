"""What of the world has to be looked at: what has changed there since the last look, or in the book.

A look at everything costs a look at every attempt that runs, and most of them only run on. So whoever was found to be
settled is passed over until something changes, on either side; now and then everything is looked at all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cotenant.backends.base import Observed
from cotenant.core.lifecycle import JobState
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob

WHOLE_EVERY = 64  # looks


@dataclass(frozen=True, slots=True)
class Concerned:
    """What is to be looked at, in order of keys; and keys of present attempts of which the world knows nothing."""

    items: list[Observed]
    absent: set[str]


class Sight:
    """Remembers what was seen last. Asked with the store's lock held, and told afterwards who is settled."""

    def __init__(self) -> None:
        self._seen: Sequence[Observed] = ()
        self._last: dict[str, Observed] = {}
        self._restless: set[str] = set()
        self._absent: set[str] = set()
        self._looks = 0

    def begin_anew(self) -> None:
        """The last look came to no end: the next is one at everything."""
        self._looks = 0

    def compare(self, seen: Sequence[Observed], book: Book) -> Concerned:
        """What is to be looked at now."""
        changed, book.unlooked = book.unlooked, set()
        before, self._looks = self._looks, self._looks + 1
        if before % WHOLE_EVERY == 0:
            self._seen, self._last = seen, {item.key: item for item in seen}
            self._restless = set(self._last)
            self._absent = {job.key for job in book.alive()}.difference(self._last)
        else:
            self._follow(seen, changed, book)
        return Concerned([self._last[key] for key in sorted(self._restless)], set(self._absent))

    def _follow(self, seen: Sequence[Observed], changed: Iterable[str], book: Book) -> None:
        last, keys = self._last, self._restless
        if seen is not self._seen:
            now = {item.key: item for item in seen}
            keys |= {key for key, item in now.items() if (was := last.get(key)) is not item and was != item}
            self._absent |= last.keys() - now.keys()
            self._seen, self._last = seen, now
        for name in changed:
            if (job := book.jobs.get(name)) is not None:
                keys.update(f"{name}-{number}" for number in range(1, len(job.attempts) + 1))
                self._absent.add(job.key)
        keys.intersection_update(self._last)
        self._absent = {key for key in self._absent if key not in self._last and owner(book, key) is not None}

    def settle(self, keys: Iterable[str]) -> None:
        """These are as the book has them, and need not be looked at again before something changes."""
        self._restless.difference_update(keys)


def owner(book: Book, key: str) -> LiveJob | None:
    """The job whose present attempt this is. One whose end is journaled has no owner: it is only to be cleared."""
    job = book.living(key.rsplit("-", 1)[0])
    return job if job is not None and job.key == key else None


def has_gpus(book: Book, key: str) -> bool:
    """Whether this attempt has GPUs now."""
    job = owner(book, key)
    return job is not None and job.id in book.on_gpus


def is_awake(job: LiveJob, item: Observed) -> bool:
    """Whether somebody woke a suspended job: its GPUs belong to others now."""
    return job.state == JobState.SUSPENDED and item.state == "running"


def is_settled(job: LiveJob, item: Observed) -> bool:
    """Whether nothing is to be done about an attempt until the book or the world has something else to say of it."""
    if item.state == "starting":
        return True
    known = job.last.started_s is not None or job.holds
    return known and item.state in ("running", "suspended") and not is_awake(job, item)
