"""Keeps what is foretold up to date, beside the scheduler and never inside a decision.

When something has happened, and now and then without, the live tables are copied (milliseconds), a process of its own
plays them forward, and the answer replaces the last one as a whole. The more that takes, the rarer it is done, so that
it never has more than a few per cent of one core. With too many jobs nothing is foretold, and nothing old is shown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from cotenant.service.facade import Unavailable
from cotenant.service.forecasts.foretold import NOTHING_FORETOLD, Foretold, Outlook
from cotenant.service.forecasts.milestones import due, moment_of
from cotenant.service.observer.report import Report
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView

MOST_JOBS = 3000
_PART = 0.05  # of one core
_SAVED_S = 5.0
_REST_S = 1.0  # for all plays of one answer but the first
_STALE_S = 60.0  # after which beliefs have changed, though nothing has happened
_log = logging.getLogger(__name__)


class Foreteller(Protocol):
    """Whoever plays scenes."""

    def foretell(self, scene: Any, rest_s: float) -> tuple[dict[str, Foretold | None], float]:
        """When each job will end, and how many seconds of a core it took to find out."""
        ...

    def close(self) -> None:
        """It is not needed any more."""
        ...


class Allowance:
    """Seconds of a core: a few per cent of the time that passes, saved up to `_SAVED_S` while little was asked."""

    def __init__(self) -> None:
        self._left_s, self._at_s = _SAVED_S, 0.0

    def spend(self, cost_s: float, least_s: float, now_s: float) -> float:
        """So much was used; after how many seconds there is something to spend again, at least `least_s`."""
        self._left_s = min(self._left_s + max(now_s - self._at_s, 0.0) * _PART, _SAVED_S) - cost_s
        self._at_s = now_s
        return max(least_s, -self._left_s / _PART)


class Forecasts:
    """The newest outlook. `look` makes a new one if it is time; a thread does that, or a test.

    `every_s`: the least time between two; 0: nothing is foretold.
    """

    def __init__(
        self,
        store: Store,
        planner: PlannerPart,
        report: Callable[[str], Report | None],
        every_s: float,
        plays: Foreteller,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._planner, self._report, self._every_s = store, planner, report, every_s
        self._plays, self._steady, self._outlook = plays, steady, NOTHING_FORETOLD
        self._holds_s, self._allowance = _STALE_S, Allowance()  # for so long an outlook is shown
        self._seen, self._next_s, self._complained = -1, 0.0, False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, job: str) -> Foretold | None:
        """What is foretold of a job, unless that is old."""
        outlook = self._outlook
        return outlook.jobs.get(job) if self._store.clock() - outlook.at_s <= self._holds_s else None

    def calibrated(self, policy: str, found: Mapping[str, Foretold | None], view: BookView, at_s: float) -> Outlook:
        """An outlook whose intervals are as wide as past errors say that they have to be here."""
        calibration, jobs = view.calibration, {}
        for name, told in found.items():
            job = view.jobs.get(name)
            if told is not None and job is not None:
                at = moment_of(job, self._report(name), told, at_s)
                jobs[name] = told.widened(at_s, calibration.get(at, 1.0))
        return Outlook(at_s, policy, jobs)

    # -- keeping it up to date -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in a thread of its own."""
        if self._every_s > 0:
            self._thread = threading.Thread(target=self._run, name="forecasts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End."""
        self._ending.set()
        self._plays.close()
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._plays.close()  # it may have been about to ask once more

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.look()
            except Exception as error:  # nobody depends on it; a look in a while begins anew
                if not self._complained and not self._ending.is_set():
                    _log.warning("nothing can be foretold just now: %s: %s", type(error).__name__, error)
                self._complained, self._outlook = True, NOTHING_FORETOLD
                self._next_s = self._steady() + _STALE_S

    def look(self) -> bool:
        """Make a new outlook if anything is new and it is time; whether one was made."""
        store, began_s = self._store, self._steady()
        seq, active = store.book.seq, len(store.book.active)  # without the lock: a look more or less
        stale = active > 0 and store.clock() - self._outlook.at_s > _STALE_S
        if (seq == self._seen and not stale) or began_s < self._next_s:
            return False
        if not 0 < active <= MOST_JOBS:
            self._outlook, self._seen = NOTHING_FORETOLD, seq
            return False
        scene = self._planner.scene()
        found, cost_s = self._plays.foretell(scene, _REST_S)
        self._next_s = began_s + self._allowance.spend(cost_s, self._every_s, began_s)
        self._holds_s = _STALE_S + 3 * cost_s / _PART
        view = store.view()
        self._outlook = self.calibrated(scene.name, found, view, scene.now_s)
        self._seen, self._complained = seq, False
        self._write_down(view)
        return True

    def _write_down(self, view: BookView) -> None:
        entries = due(view.active, self._outlook, self._report)
        with suppress(Unavailable):  # then this is no time to write what nobody needs
            with self._store.lock:
                entries = [entry for entry in entries if entry.job in self._store.book.active]
                future = self._store.begin_write(entries) if entries else None
            if future is not None:
                self._store.end_write(future)
                self._seen += len(entries)


class InPlace:
    """Plays scenes in the thread that asks."""

    def foretell(self, scene: Any, rest_s: float) -> tuple[dict[str, Foretold | None], float]:
        """When each job will end; that takes no virtual time."""
        from cotenant.service.planner.forecast import Patience, forecast

        return forecast(scene, Patience(rest_s=rest_s))[0], 0.0

    def close(self) -> None:
        """Nothing to end."""
