"""What jobs report about themselves when their runtimes call home, and what is said back to them.

Reports are hints: they are kept in memory, come again when a job reconnects, and losing them loses no job.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.backends.base import CallHome
from cotenant.core.errors import InputError
from cotenant.runtime.protocol import (
    Checkpoint,
    Declined,
    Go,
    Hello,
    JobMessage,
    Pause,
    Progress,
    Restored,
    Set,
    Settings,
    Stop,
    Stopping,
    TakeTurns,
)
from cotenant.runtime.server import RuntimeServer
from cotenant.service.observer.report import Report
from cotenant.service.observer.report_columns import ReportColumns, ReportNews
from cotenant.service.observer.secret import load_secret
from cotenant.service.observer.stage_turns import TurnLines
from cotenant.service.observer.start_barrier import StartBarrier

if TYPE_CHECKING:
    from cotenant.service.store.job import LiveJob


class Reports:
    """The newest report per job. Messages arrive on the event loop, questions from any thread.

    `addresses` is where to listen, as the backend says; new jobs call the first. A port that was free once is asked
    for again after a restart, since running jobs know no other: it is kept at `home`, as the secret is.
    """

    def __init__(self, home: Path, addresses: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self.addresses, self._clock, self.holding, self.lines = tuple(addresses), clock, StartBarrier(), TurnLines()
        self._known = home / "runtime.addresses"
        self._secret = load_secret(home / "runtime.key")
        self._lock = threading.Lock()
        self._reports: dict[str, Report] = {}
        self._said = ReportColumns()
        self._warm: set[str] = set()
        self._stops: dict[str, float] = {}
        self._settings: dict[str, Settings] = {}
        self._over: dict[str, int] = {}  # the last attempt that has ended: what it still says is old
        self._server: RuntimeServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def token(self, job: str, attempt: int) -> str:
        """The short-lived token of one attempt: useless for any other."""
        return hmac.new(self._secret, f"{job}/{attempt}".encode(), hashlib.sha256).hexdigest()

    def calls_home(self, job: LiveJob) -> CallHome | None:
        """Where the runtime inside the job finds us, and its secret; None where the backend knows of no way."""
        return CallHome(self.addresses[0], self.token(job.id, len(job.attempts))) if self.addresses else None

    def environment(self, job: LiveJob, checkpoints: str) -> dict[str, str]:
        """What the runtime inside the job needs to know."""
        env = {
            "COTENANT_JOB_ID": job.id,
            "COTENANT_ATTEMPT": str(len(job.attempts)),
            "COTENANT_TENANT": job.tenant,
            "COTENANT_CHECKPOINT_DIR": checkpoints,
        }
        if job.spec.checkpoint_interval_s:
            env["COTENANT_CHECKPOINT_INTERVAL_S"] = str(job.spec.checkpoint_interval_s)
        return env | _size(job)

    async def start(self) -> None:
        """Listen on the running event loop."""
        self._loop = asyncio.get_running_loop()
        failure: Exception | None = None
        for addresses in dict.fromkeys((self._as_before(), self.addresses)):
            server = RuntimeServer(addresses, self._authenticate, self.hear)
            try:
                await server.start()
            except (OSError, ValueError) as error:
                failure = error
                continue
            self._server, self.addresses = server, server.addresses
            self.holding.say = self.lines.say = partial(_say_soon, self._loop, server)
            self._known.write_text("\n".join(server.addresses) + "\n", encoding="utf-8")
            return
        raise InputError(f"no job could call home at {', '.join(self.addresses)}: {failure}") from failure

    def _as_before(self) -> tuple[str, ...]:
        """The addresses, with the ports that were found for them by an earlier start."""
        known = self._known.read_text(encoding="utf-8").split("\n") if self._known.exists() else []
        return tuple(
            next((old for old in known if address.endswith(":0") and old.startswith(address[:-1])), address)
            for address in self.addresses
        )

    async def stop(self) -> None:
        """Close the socket; jobs go on."""
        if self._server is not None:
            await self._server.stop()

    def _authenticate(self, hello: Hello) -> Settings | None:
        known = hmac.compare_digest(hello.token, self.token(hello.job, hello.attempt))
        with self._lock:
            return self._settings.get(hello.job, Settings()) if known else None

    def hear(self, hello: Hello, message: JobMessage) -> None:
        """A job says something."""
        with self._lock:
            if hello.attempt <= self._over.get(hello.job, 0):
                return
            report = self._reports.get(hello.job)
            if report is None:
                report = self._reports[hello.job] = Report()
            if isinstance(message, Progress):  # all running jobs say this several times a second
                if report.take(message, self._clock()):
                    self._warm.add(hello.job)
                self._said.write(hello.job, report)
                return
            if isinstance(message, Checkpoint):
                report.checkpoint_s = self._clock()
            elif isinstance(message, Restored):
                report.step = report.first = message.step
                report.restore_s = message.seconds
            elif isinstance(message, Stopping):
                report.left_saved = message.saved
            elif isinstance(message, Declined):
                self._stops.pop(hello.job, None)  # no use in waiting: the next rung
            self._said.write(hello.job, report)
            grace = self._stops.get(hello.job)
        self.holding.hear(hello, message)
        if isinstance(message, Hello) and grace is not None and self._server is not None:
            self._server.send(hello.job, Stop(grace_s=grace))
        if isinstance(message, Hello) and self._server is not None:
            self._server.send(hello.job, self.lines.of(hello.job))
            if self.holding.lets_go(message):
                self._server.send(hello.job, Go())

    def told(self, job: str) -> Settings:
        """What a job was told to keep to."""
        with self._lock:
            return self._settings.get(job, Settings())

    def of(self, job: str) -> Report | None:
        """The newest report of a job. Asked often, and without the lock: a look-up is one step."""
        return self._reports.get(job)

    def news(self) -> ReportNews:
        """What those jobs say that have said something since this was asked last."""
        with self._lock:
            return self._said.news()

    def place(self, job: str) -> tuple[int, float] | None:
        """Where among these words those of a job are, and its tenure there; None while it has not spoken."""
        with self._lock:
            return self._said.place(job)

    def warm(self) -> set[str]:
        """Jobs whose start has turned out to be over since this was asked last."""
        with self._lock:
            found, self._warm = self._warm, set()
            return found

    def look_again(self, jobs: Iterable[str]) -> None:
        """What is believed of the speed of some jobs has changed without a word of theirs."""
        with self._lock:
            for job in jobs:
                if job in self._reports:
                    self._said.write(job, self._reports[job], spoke=False)

    def listens(self, job: str) -> bool:
        """Whether a job can save and has been asked to: worth waiting for."""
        with self._lock:
            report = self._reports.get(job)
            return report is not None and report.saves and job in self._stops

    def can_save(self, job: str) -> bool:
        """Whether a job has said that it can save its work when it is asked to stop."""
        report = self._reports.get(job)
        return report is not None and report.saves

    def ask_to_stop(self, job: str, grace_s: float) -> bool:
        """Ask a job that can save to do so and end; whether there was one to ask."""
        with self._lock:
            report = self._reports.get(job)
            if report is None or not report.saves or self._loop is None:
                return False
            self._stops[job] = grace_s
        server = self._server
        if server is not None:
            self._loop.call_soon_threadsafe(server.send, job, Stop(grace_s=grace_s))
        return True

    def set_for(self, job: str, settings: Settings) -> None:
        """Tell a job what holds from its next step on, now and whenever it connects again; the rest stays as told."""
        with self._lock:
            before = self._settings.get(job, Settings())
            self._settings[job] = before.updated(settings)
            if self._settings[job] == before:
                return
        if self._server is not None and self._loop is not None:
            message = Set(**settings.given())  # type: ignore[arg-type]
            self._loop.call_soon_threadsafe(self._server.send, job, message)

    def stand_still(self, job: str, seconds: float) -> None:
        """Have a job wait so long after its present step, once. It is not told again when it connects anew."""
        self.paused(job)
        if self._server is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._server.send, job, Pause(seconds))

    def withdraw(self, job: str) -> None:
        """A job is no longer asked to stop: it was suspended instead."""
        with self._lock:
            self._stops.pop(job, None)
        self.paused(job)

    def paused(self, job: str) -> None:
        """A job stands still, or has just gone on: that is not its speed."""
        with self._lock:
            if (report := self._reports.get(job)) is not None:
                report.speed.gap()

    def drop(self, job: str, attempt: int) -> None:
        """An attempt is over: what it said no longer holds."""
        self.holding.release(job)
        with self._lock:
            self._over[job] = attempt
            self._reports.pop(job, None)
            self._said.forget(job)
            self._stops.pop(job, None)
            self._settings.pop(job, None)

    def shift(self, by_s: float) -> None:
        """The clock was set: whatever was saved was saved so much later."""
        with self._lock:
            for report in self._reports.values():
                report.shift(by_s)

    def forget(self, job: str) -> None:
        """A job is retired."""
        with self._lock:
            self._over.pop(job, None)


def _say_soon(loop: asyncio.AbstractEventLoop, server: RuntimeServer, job: str, message: Go | TakeTurns) -> None:
    loop.call_soon_threadsafe(server.send, job, message)


def _size(job: LiveJob) -> dict[str, str]:
    """How large this attempt is, how large it was asked to be, and the batch that the job file names."""
    spec = job.spec
    env = {
        "COTENANT_GPUS": str(job.size),
        "COTENANT_GPUS_ASKED": str(job.asked_gpus or spec.gpus),
    }
    if spec.batch_size:
        env["COTENANT_SETTINGS"] = json.dumps({"batch_size": spec.batch_size})
    for name, samples in (("COTENANT_BATCH_MIN", spec.batch_min), ("COTENANT_BATCH_MAX", spec.batch_max)):
        if samples:
            env[name] = str(samples)
    return env
