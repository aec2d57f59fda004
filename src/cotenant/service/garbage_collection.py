"""Keep the garbage collector away from what lives long.

A full collection visits every object of every job: 100 ms and more with 10,000 of them, in one decision out of
twenty. What has survived is therefore set aside (`gc.freeze`): when the book is large and has doubled, and once an
hour, so that what was alive then and has become a dead cycle does not stay for ever. Plain dead objects are freed at
once in any case.
"""

from __future__ import annotations

import gc
import time

EVERY_S = 3600.0
_FEW = 1000  # jobs that may come before doubling counts


class LongLived:
    """What the collector need not visit."""

    def __init__(self, now_s: float | None = None) -> None:
        self._jobs, self._at_s = 0, time.monotonic() if now_s is None else now_s

    def settle(self, jobs: int, now_s: float | None = None) -> bool:
        """Between two decisions: whether it was time to collect once and set aside what is left."""
        now_s = time.monotonic() if now_s is None else now_s
        if jobs <= 2 * self._jobs + _FEW and now_s - self._at_s < EVERY_S:
            return False
        self._jobs, self._at_s = jobs, now_s
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return True

    def release(self) -> None:
        """Back to how it was before."""
        self._jobs = 0
        gc.unfreeze()
