"""Notices on their way: queued as records are taken in, sent by threads of their own, tried again, and bounded.

Nothing waits for a receiver: the queue holds so many notices, those beyond are dropped and counted. What is not
delivered when the service stops is lost.
"""

from __future__ import annotations

import heapq
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import count

from cotenant.core.lifecycle import JobState
from cotenant.journal import Record
from cotenant.service.notify.senders import Notice, run_command, send_mail, send_webhook
from cotenant.service.notify.settings import NotifySettings
from cotenant.service.store.job import LiveJob

MOST_QUEUED = 10_000
WORKERS = 4
PAUSES_S = (1.0, 5.0, 30.0, 120.0)  # before each further try
_KINDS = ("started", "exit", "reject", "stop")


@dataclass(order=True, slots=True)
class _Errand:
    due_s: float
    number: int
    target: str = field(compare=False)
    notice: Notice = field(compare=False)
    tries: int = field(compare=False, default=0)


class Notifier:
    """`heard` is called with every record, with the store's lock held; it only queues."""

    def __init__(self, settings: NotifySettings, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self.settings, self._pauses_s = settings, pauses_s
        self._changed = threading.Condition()
        self._queue: list[_Errand] = []
        self._numbers, self._threads, self._ending = count(), list[threading.Thread](), False
        self.sent = self.dropped = 0

    def heard(self, record: Record, job: LiveJob | None) -> None:
        """Something was journaled."""
        if job is None or record.kind not in _KINDS:
            return
        targets = (*self.settings.to, *(f"command:{text}" for text in self.settings.commands))
        if not targets and not job.spec.notify:
            return
        event = _event(record, job)
        if not event:
            return
        wanted = [target for target in targets if _wants(event, self.settings.on)]
        wanted += [target for target in job.spec.notify if _wants(event, job.spec.notify_on)]
        notice = {
            "event": event, "job": job.id, "name": job.spec.name, "tenant": job.tenant, "user": job.user,
            "state": str(job.state), "reason": job.message, "at_s": record.time_s,
        }  # fmt: skip
        for target in dict.fromkeys(wanted):
            self._put(_Errand(time.monotonic(), next(self._numbers), target, notice))

    def _put(self, errand: _Errand) -> None:
        with self._changed:
            if len(self._queue) >= MOST_QUEUED or self._ending:
                self.dropped += 1
                return
            heapq.heappush(self._queue, errand)
            if len(self._threads) < WORKERS:
                thread = threading.Thread(target=self._work, name="notify", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _work(self) -> None:
        while (errand := self._next()) is not None:
            try:
                self._send(errand)
                self.sent += 1
            except (OSError, subprocess.TimeoutExpired) as error:
                self._again(errand, str(error))
            except Exception as error:  # a notice must not end the thread that others wait for
                self._give_up(errand, str(error))

    def _next(self) -> _Errand | None:
        """The next that is due; None when all is over."""
        with self._changed:
            while not self._ending:
                wait_s = self._queue[0].due_s - time.monotonic() if self._queue else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._queue)
                self._changed.wait(wait_s)
            return None

    def _send(self, errand: _Errand) -> None:
        kind, _, rest = errand.target.partition(":")
        if kind == "mailto":
            send_mail(rest, errand.notice, self.settings.smtp)
        elif kind == "command":
            run_command(rest, errand.notice)
        else:
            send_webhook(errand.target, errand.notice, self.settings)

    def _again(self, errand: _Errand, why: str) -> None:
        if errand.tries >= len(self._pauses_s):
            self._give_up(errand, why)
            return
        errand.due_s, errand.tries = time.monotonic() + self._pauses_s[errand.tries], errand.tries + 1
        self._put(errand)

    def _give_up(self, errand: _Errand, why: str) -> None:
        self.dropped += 1
        target = errand.target.partition("?")[0]  # what follows may be a secret
        sys.stderr.write(f"cotenant: notify: job {errand.notice['job']} to {target}: {' '.join(why.split())}\n")

    def close(self) -> None:
        """Let what is being sent come to its end."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=1.0)


def _event(record: Record, job: LiveJob) -> str:
    """Which of the moments this is that people can be told of; empty for none."""
    if record.kind == "started":
        return "start" if sum(one.started_s is not None for one in job.attempts) == 1 else ""
    if not job.finished:
        return ""
    return "failure" if job.state == JobState.FAILED else "end"


def _wants(event: str, on: tuple[str, ...]) -> bool:
    """A failure is an end too."""
    return event in on or (event == "failure" and "end" in on) or (not on and event != "start")
