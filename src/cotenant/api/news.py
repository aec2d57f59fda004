"""History as it happens: one thread waits for all who listen, and who asks for the same page gets the same bytes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cotenant.service.facade import Caller, EventInfo

if TYPE_CHECKING:
    from cotenant.service.desk.desk import Desk

SLICE_S = 1.0
_AT_ONCE = 16
_PAUSE_S = 0.004  # per listener: many listeners hear of several records at once
_MOST_IDLE = 3

Render = Callable[[list[EventInfo], Caller, int], bytes]
"""What a page looks like: events, for whom, and the number to go on from."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some events as bytes, how many there are, and the number to go on from."""

    content: bytes
    count: int
    next: int


@dataclass(frozen=True, slots=True)
class PageAsked:
    """Which events, from where on, and how they are to look."""

    job: str
    after: int
    limit: int
    render: Render


class News:
    """Listeners on one event loop. `in_thread` runs a blocking call."""

    def __init__(self, desk: Desk, in_thread: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._desk, self._in_thread = desk, in_thread
        self._waiting: dict[asyncio.Future[None], Caller] = {}
        self._watch: asyncio.Task[None] | None = None
        self._last = 0
        self._pages: dict[tuple[object, ...], asyncio.Task[Page]] = {}

    async def last(self) -> int:
        """The number of the newest event."""
        found: int = await self._in_thread(self._desk.wait_events, 0, 0.0)
        return found

    async def page(
        self, caller: Caller, ask: PageAsked, wait_s: float, go_on: Callable[[], bool] = lambda: True
    ) -> Page:
        """Events, waiting for the first as long as `go_on` says so; past what is not the caller's."""
        if ask.after < 0:
            ask = replace(ask, after=await self.last())
        if wait_s <= 0:
            found: Page = await self._in_thread(self._read_now, caller, ask)
            return found
        end_s = time.monotonic() + wait_s
        while True:
            new = await self._beyond(caller, ask.after, min(SLICE_S, max(0.0, end_s - time.monotonic())))
            page = await self._read(caller, ask) if new else Page(ask.render([], caller, ask.after), 0, ask.after)
            if page.count or time.monotonic() >= end_s or not go_on():
                return page
            ask = replace(ask, after=page.next)

    async def _beyond(self, caller: Caller, seq: int, timeout_s: float) -> bool:
        """Wait until there is an event after this one, or time is up; whether there is one."""
        if self._watch is None or self._watch.done():
            self._last = seq
            self._watch = asyncio.create_task(self._listen())
        if self._last <= seq:
            future = asyncio.get_running_loop().create_future()
            self._waiting[future] = caller
            try:
                await asyncio.wait((future,), timeout=timeout_s)
            finally:
                self._waiting.pop(future, None)
        return self._last > seq

    async def _listen(self) -> None:
        """Wake all who wait whenever the journal has grown; ends when nobody has waited for a while."""
        idle = 0
        while idle < _MOST_IDLE:
            newest = await self._in_thread(self._desk.wait_events, self._last, SLICE_S)
            idle = 0 if self._waiting else idle + 1
            if newest > self._last:
                self._last = newest
                self._pages.clear()
                await self._wake()
        self._pages.clear()

    async def _wake(self) -> None:
        """Some at a time, so that requests get their turn in between; of each caller one before anybody's second."""
        waiting, self._waiting = self._waiting, {}
        before: Counter[Caller] = Counter()
        ranks: list[tuple[int, asyncio.Future[None]]] = []
        for future, caller in waiting.items():
            ranks.append((before[caller], future))
            before[caller] += 1
        ranks.sort(key=lambda one: one[0])
        for first in range(0, len(ranks), _AT_ONCE):
            some = ranks[first : first + _AT_ONCE]
            for _, future in some:
                if not future.done():
                    future.set_result(None)
            await asyncio.sleep(_PAUSE_S * len(some))

    async def _read(self, caller: Caller, ask: PageAsked) -> Page:
        """A page; until there is news, whoever sees the same and asks for the same shares it."""
        key = (caller.tenant, caller.role, caller.administers, ask)
        task = self._pages.get(key)
        if task is None:
            task = self._pages[key] = asyncio.create_task(self._in_thread(self._read_now, caller, ask))
        return await asyncio.shield(task)

    def _read_now(self, caller: Caller, ask: PageAsked) -> Page:
        last = self._desk.wait_events(ask.after, 0.0)
        found = self._desk.events(caller, ask.job, max(ask.after, 0), ask.limit)
        after = max([ask.after, *(item.seq for item in found[-1:])])
        if len(found) < ask.limit:
            after = max(after, last)
        return Page(ask.render(found, caller, after), len(found), after)
