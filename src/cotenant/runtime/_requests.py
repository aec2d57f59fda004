"""How long requests take: what an inference server inside a job counts and reports."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Requests:
    """Requests of the last seconds, from any thread: `with requests.timed(): answer()`, then `report(**metrics())`."""

    def __init__(self, window_s: float = 10.0, target_ms: float | None = None) -> None:
        self._window_s, self._began_s = window_s, time.monotonic()
        said_ms = float(os.environ.get("COTENANT_TARGET_MS") or "inf") if target_ms is None else target_ms
        self._target_s, self._count, self._within = said_ms / 1000, 0, 0
        self._seen: deque[tuple[float, float]] = deque()  # when it was answered, and what it took
        self._lock = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around all that a request waits and takes."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.took(time.monotonic() - began_s)

    def took(self, seconds: float) -> None:
        """A request was answered after so long."""
        with self._lock:
            self._seen.append((time.monotonic(), seconds))
            self._count += 1
            self._within += seconds <= self._target_s

    def metrics(self) -> dict[str, float]:
        """`p99_ms` and `requests_per_s` of the window, 0 without requests; `requests` and `within_target` of them all.

        The last one is the share within the target of the job file.
        """
        now_s = time.monotonic()
        with self._lock:
            while self._seen and self._seen[0][0] < now_s - self._window_s:
                self._seen.popleft()
            took = sorted(seconds for _, seconds in self._seen)
            count, within = self._count, self._within
        counted_s = max(min(self._window_s, now_s - self._began_s), 1e-3)
        p99_s = took[min(int(0.99 * len(took)), len(took) - 1)] if took else 0.0
        share = within / count if count else 1.0
        lately = {"p99_ms": p99_s * 1000, "requests_per_s": len(took) / counted_s}
        return lately | {"requests": float(count), "within_target": share}
