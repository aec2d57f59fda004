"""One poll for all our jobs, however many there are, shared by all who want to know."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from cotenant.backends.slurm.commands import Slurm, SlurmJob


class Poll:
    """The last answer of the controller, and when it was asked for. From any thread."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._asking = threading.Lock()
        self._jobs: dict[str, SlurmJob] = {}
        self._asked_s, self._since, self._stale = -1e9, 0, True

    @property
    def count(self) -> int:
        """Jobs of ours that the controller remembers, as far as is known."""
        return len(self._jobs) + self._since

    def submitted(self) -> None:
        """One more came in."""
        self._since += 1

    def stale(self) -> None:
        """Something was done to a job: what is known may be old."""
        self._stale = True

    def latest(self, max_age_s: float) -> Mapping[str, SlurmJob]:
        """By what their comments say; asked anew if the last answer is older than this, or stale."""
        began = time.monotonic()
        with self._asking:
            if self._stale or self._asked_s < began - max_age_s:
                since, self._stale, asked_s = self._since, False, time.monotonic()
                try:
                    self._jobs = self._slurm.jobs()
                except BaseException:
                    self._stale = True
                    raise
                self._since -= since
                self._asked_s = asked_s
            return self._jobs

    @property
    def asked_s(self) -> float:
        """When the last answer was asked for, by the monotonic clock."""
        return self._asked_s
