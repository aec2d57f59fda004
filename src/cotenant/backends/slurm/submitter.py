"""Hands jobs to Slurm, no more at a time than its controller shall remember.

Slurm keeps a job for MinJobAge seconds after its end, and takes no more than MaxJobCount in all: so short jobs fill it
though few run. What has no room yet waits here, on disk, and counts as starting. While the controller is slow to
answer, by its own load or that of its machine, jobs come to it more slowly. A submission may be cut off at any
instruction: `tried` is written before it, and whoever finds that without a number asks Slurm for the comment first;
should the job have come in all the same, its record is `claimed` once only.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable

from cotenant.backends.base import BackendError, Unreachable
from cotenant.backends.slurm.commands import Busy, Slurm
from cotenant.backends.slurm.poll import Poll
from cotenant.backends.slurm.records import SlurmRecord

_AGAIN_S = 1.0
_BRISK_S = 0.25  # for which a poll may take; what it takes beyond is waited before the next submission


class Submitter:
    """One thread; the order is that of `put`. `most`: jobs of ours in the controller at a time, ended ones included."""

    def __init__(self, slurm: Slurm, poll: Poll, most: int, changed: Callable[[], None]) -> None:
        self._slurm, self._poll, self._most, self._changed = slurm, poll, most, changed
        self._queue: deque[SlurmRecord] = deque()
        self._news = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def put(self, record: SlurmRecord) -> None:
        """Submit this one when there is room."""
        with self._news:
            self._queue.append(record)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sbatch", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """End after the present submission; what waits stays on disk for whoever comes next."""
        with self._news:
            self._ending = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._ending or self._queue)
                if self._ending:
                    return
                record = self._queue[0]
            try:
                if self._room():
                    self.submit(record)
                    with self._news:
                        self._queue.popleft()
                    self._changed()
                    self._rest(self._slurm.took_s - _BRISK_S)
                    continue
            except (Unreachable, Busy, OSError):  # OSError: a full disk, say
                pass  # nobody knows whether it came in: the next try finds out
            self._rest(_AGAIN_S)

    def _rest(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._ending, max(seconds, 0.0))

    def _room(self) -> bool:
        if self._poll.count >= self._most:
            self._poll.latest(_AGAIN_S)
        return self._poll.count < self._most

    def submit(self, record: SlurmRecord) -> None:
        """Hand it over, unless that has been done."""
        if not record.exists():
            return
        lock = record.lock()
        if lock is None:  # somebody looks at it, or hands it over: the next try finds out
            raise Busy(f"job {record.key} is being looked at")
        try:
            if not record.spec() or record.has("job") or record.has("exit.json") or record.has("lost"):
                return
            if record.has("killed"):
                record.settle(9)
                return
            if record.has("tried") and (found := self._poll.latest(0.0).get(record.key)) is not None:
                record.write("job", str(found.id).encode())
                return
            record.write("tried", b"")
            try:
                order = json.loads(record.text("order.json"))
                number = self._slurm.submit(record.key, order["options"], order["script"], order["env"])
            except (Unreachable, Busy):
                raise
            except BackendError as error:
                record.lose(f"Slurm did not take it: {error}")
                return
            self._poll.submitted()
            record.write("job", str(number).encode())
        finally:
            with contextlib.suppress(OSError):
                os.close(lock)
