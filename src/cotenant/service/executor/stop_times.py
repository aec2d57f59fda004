"""Which jobs on GPUs may have to stop though nobody decided it: those that changed, and those whose time is over."""

from __future__ import annotations

import heapq
from math import inf

from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob


class StopTimes:
    """When the time of jobs is over, the earliest first; asked with the store's lock held."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}  # what holds of the heap
        self._anew = True

    def begin_anew(self) -> None:
        """What was asked for was not done: ask about everybody."""
        self._anew = True

    def due(self, book: Book, now_s: float) -> list[LiveJob]:
        """Whom to ask about, in the order in which they were submitted."""
        changed, book.unpressed = book.unpressed, set()
        names = set(book.on_gpus) if self._anew else changed
        self._anew = False
        while self._heap and self._heap[0][0] <= now_s:
            names.add(heapq.heappop(self._heap)[1])
        for name in names:
            self._at.pop(name, None)
        return sorted((book.on_gpus[name] for name in names if name in book.on_gpus), key=lambda job: job.order)

    def note(self, name: str, due_s: float) -> None:
        """A job was asked about: its time is over then."""
        if due_s < inf and self._at.get(name) != due_s:
            self._at[name] = due_s
            heapq.heappush(self._heap, (due_s, name))

    def next_s(self) -> float:
        """When the next one's time is over."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else inf
