"""What one caller may take: so many requests, streams and long polls at a time, and so many requests a second.

Whoever has no token shares one small budget with all others who have none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace

from anyio import CapacityLimiter

from cotenant.core.errors import InputError, unknown
from cotenant.service.facade import Caller, TooMany

_READS = 8  # of one caller's streams at a time
_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """Bounds of the HTTP side; of one caller unless they begin with `all_`.

    `requests` at a time, as many again times eight may wait; `rate` a second, `burst` at once; `strangers` a second of
    all requests without a valid token. `header_s`, `body_s`: how long a request may take to come; `unread_s`: how long
    an answer may wait to be read. `all_connections` is cut to what descriptors allow, the other `all_` to a third.
    """

    requests: int = 32
    rate: float = 1000.0
    burst: float = 2000.0
    streams: int = 64
    polls: int = 64
    strangers: float = 50.0
    header_s: float = 10.0
    body_s: float = 30.0
    unread_s: float = 60.0
    all_streams: int = 1000
    all_polls: int = 1000
    all_connections: int = 4000

    def within(self, descriptors: int) -> CallerLimits:
        """The same for a process that may open so many files: a quarter of them is for other uses."""
        connections = min(self.all_connections, max(16, descriptors * 3 // 4 - 64))
        third = max(4, connections // 3)
        return replace(
            self, all_connections=connections, all_streams=min(self.all_streams, third),
            all_polls=min(self.all_polls, third),
        )  # fmt: skip


def read_limits(text: str) -> CallerLimits:
    """`streams=16,rate=50`: limits of which some are given."""
    known = {one.name: one.type for one in fields(CallerLimits)}
    given: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in known:
            raise unknown("--limits", name, list(known))
        try:
            given[name] = int(value) if known[name] == "int" else float(value)
        except ValueError:
            raise InputError(f"--limits {name}={value}: write a number") from None
        if not 0 < given[name] < 1e9:
            raise InputError(f"--limits {name}={value}: write a number above 0")
    return replace(CallerLimits(), **given)  # type: ignore[arg-type]


class Bucket:
    """So many a second on average, some more at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._at_s = burst, clock()

    def take(self) -> bool:
        """Whether there is one left."""
        now_s = self._clock()
        self._level = min(self._burst, self._level + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True


class Seat:
    """A place that a stream or a poll has until it leaves, or until somebody with less needs it."""

    def __init__(self) -> None:
        self.lost = False


class Seats:
    """Places of one kind, bounded per caller and in all. When all are taken, whoever has most gives one up."""

    def __init__(self, what: str, most: int, most_of_all: int) -> None:
        self._what, self._most, self._most_of_all = what, most, most_of_all
        self._taken: dict[Caller, list[Seat]] = {}
        self._count = 0

    @contextmanager
    def taken(self, caller: Caller) -> Iterator[Seat]:
        """A place, as long as it is needed."""
        mine = self._taken.setdefault(caller, [])
        if len(mine) >= self._most:
            raise TooMany(f"you have {len(mine)} {self._what} open, which is the most for one caller: close one")
        if self._count >= self._most_of_all:
            self._make_room(len(mine))
        seat = Seat()
        mine.append(seat)
        self._count += 1
        try:
            yield seat
        finally:
            if not seat.lost:
                self._leave(caller, seat)

    def of(self, caller: Caller) -> int:
        """How many a caller has."""
        return len(self._taken.get(caller, ()))

    def _make_room(self, mine: int) -> None:
        most = max(self._taken, key=lambda caller: len(self._taken[caller]))
        if len(self._taken[most]) <= mine + 1:
            raise TooMany(f"{self._count} {self._what} are open, which is the most: close one")
        seat = self._taken[most][0]
        seat.lost = True
        self._leave(most, seat)

    def _leave(self, caller: Caller, seat: Seat) -> None:
        self._count -= 1
        self._taken[caller].remove(seat)
        if not self._taken[caller]:
            del self._taken[caller]


class Turns:
    """So many calls of one caller at a time; eight times as many may wait, further ones are refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limiters: dict[Caller, CapacityLimiter] = {}
        self._inside: Counter[Caller] = Counter()

    @asynccontextmanager
    async def taken(self, caller: Caller) -> AsyncIterator[None]:
        """A turn; who asks for more than his share waits for his own others."""
        if self._inside[caller] >= 9 * self._most:
            raise TooMany(f"{self._inside[caller]} of your requests are being answered: wait for some")
        limiter = self._limiters.setdefault(caller, CapacityLimiter(self._most))
        self._inside[caller] += 1
        try:
            async with limiter:
                yield
        finally:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller], self._limiters[caller]


class CallerShares:
    """All that is shared out, on one event loop."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limits = limits
        self.streams = Seats("streams", limits.streams, limits.all_streams)
        self.polls = Seats("long polls", limits.polls, limits.all_polls)
        self.strangers = Bucket(limits.strangers, 4 * limits.strangers)
        self.calls, self.reads = Turns(limits.requests), Turns(_READS)
        self._buckets: dict[Caller, Bucket] = {}

    def count(self, caller: Caller) -> None:
        """One request more of a caller: within his rate, or refused."""
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(caller, Bucket(self.limits.rate, self.limits.burst))
        if not bucket.take():
            raise TooMany(f"more than {self.limits.rate:g} requests a second: slow down")
