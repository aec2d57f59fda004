"""Log lines that strangers can cause, bounded: some of each kind, then how many there were besides."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

MOST = 5
PER_S = 60.0
_LOGGERS = ("asyncio", "uvicorn.error", "cotenant.api", "cotenant.runtime.server")


class Repeats(logging.Filter):
    """Lets some records of one text through a minute, without their arguments, and counts the others."""

    def __init__(self, most: int = MOST, per_s: float = PER_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._per_s, self._clock = most, per_s, clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is told."""
        if len(self._seen) > 1000:
            self._seen.clear()
        key, now_s = (record.name, str(record.msg)[:200]), self._clock()
        since_s, count = self._seen.get(key, (now_s, 0))
        if now_s - since_s >= self._per_s:
            if count > self._most:
                record.msg = f"{record.msg} ({count - self._most} more like this in {now_s - since_s:.0f} s before)"
            since_s, count = now_s, 0
        self._seen[key] = since_s, count + 1
        return count < self._most


def bound_logs() -> None:
    """Have the loggers of connections and refused requests repeat themselves rarely."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Repeats) for one in logger.filters):
            logger.addFilter(Repeats())
