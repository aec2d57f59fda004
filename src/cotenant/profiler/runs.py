"""Commands as processes that are watched: started on a backend, heard through their runtimes, told settings.

A command must use `cotenant.runtime`: that is where steps come from. A `Station` listens for all of them; a
`CommandRun` is one process with the moments of everything that it told, in Unix seconds, as the backend has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from cotenant.backends.base import Backend, CallHome, LaunchSpec, Observed
from cotenant.backends.local.procs import descendants
from cotenant.core.errors import CotenantError
from cotenant.runtime.protocol import (
    Checkpoint,
    Declined,
    Done,
    Hello,
    JobMessage,
    Progress,
    Restored,
    Set,
    Settings,
    Stop,
    Stopping,
)
from cotenant.runtime.server import RuntimeServer

LOOK_S = 0.05
_OBSERVE_S = 0.1
_PAUSE_S = 1e6  # between two steps: until told otherwise
_NEVER_S = "86400"  # between periodic checkpoints: none while we measure
_TAIL = 2000


class CommandError(CotenantError):
    """A command that cannot be profiled: one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class ProfiledCommand:
    """What to run, under the name of its model. `cuts`: its batch may be cut into sub-batches (not with batch norm)."""

    name: str
    argv: tuple[str, ...]
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 1
    cuts: bool = True


class CommandRun:
    """One process of a command."""

    def __init__(self, command: ProfiledCommand, key: str, folder: str, settings: Settings) -> None:
        self.command, self.key, self.folder, self.settings = command, key, folder, settings
        self.token = secrets.token_hex(16)
        self.began_s = time.time()
        self.pid = 0
        self.points: list[tuple[float, int]] = []
        self.total: int | None = None
        self.saves = False
        self.batch = 0
        self.restored_s = math.nan
        self.base = 0  # steps that were done before this process
        self.checkpoint: tuple[float, float] | None = None  # when it was complete, and how long it took
        self.stopping_s = math.nan
        self.done_s = math.nan
        self.declined = ""
        self.paused = False
        self.stands = False  # it has to be stopped by a signal where others pause by themselves
        self.looked_s = 0.0
        self.end: Observed | None = None

    def hear(self, message: JobMessage) -> None:
        """Take a message in; called by the listening thread."""
        now = time.time()
        if isinstance(message, Hello):
            self.pid = message.pid
        elif isinstance(message, Progress):
            self.points.append((now, message.step))
            self.total, self.saves = message.total, message.saves
            self.batch = self.batch or int(message.metrics.get("batch", 0))
        elif isinstance(message, Restored):
            self.restored_s, self.base = message.seconds, message.step
        elif isinstance(message, Checkpoint):
            self.checkpoint = now, message.seconds
        elif isinstance(message, Stopping):
            self.stopping_s = now
        elif isinstance(message, Declined):
            self.declined = message.reason
        elif isinstance(message, Done):
            self.done_s = now

    @property
    def called(self) -> bool:
        """Whether its runtime has ever called."""
        return self.pid > 0

    @property
    def stepped(self) -> bool:
        """Whether it has finished a step."""
        return bool(self.points) and self.points[-1][1] > self.base


class Station:
    """Where commands run and are heard. Ends all of them when it is left."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.runs: dict[str, CommandRun] = {}
        self._events = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._events.run_forever, daemon=True)
        self._server = RuntimeServer(backend.listen_at(), self._known, self._heard)

    def __enter__(self) -> Station:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._events).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for run in list(self.runs.values()):
                self.end(run)
                self.backend.drop_checkpoints(run.folder)
        finally:
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._events).result()
            self._events.call_soon_threadsafe(self._events.stop)
            self._thread.join()
            self._events.close()

    def _known(self, hello: Hello) -> Settings | None:
        run = self.runs.get(hello.job)
        return run.settings if run is not None and secrets.compare_digest(hello.token, run.token) else None

    def _heard(self, hello: Hello, message: JobMessage) -> None:
        run = self.runs.get(hello.job)
        if run is not None:
            run.hear(message)
            self.backend.wake()

    # -- one process -----------------------------------------------------------------------------------------------

    def start(
        self, command: ProfiledCommand, *, folder: str = "", settings: Settings | None = None,
        cpus: Sequence[int] | None = None, cpu_share: float | None = None,
    ) -> CommandRun:  # fmt: skip
        """Start it. A `folder` of checkpoints (an earlier run's) lets it go on from there."""
        key = f"profile-{secrets.token_hex(4)}"
        run = CommandRun(command, key, folder or key, settings or Settings())
        self.runs[key] = run
        mine = {
            "COTENANT_JOB_ID": key, "COTENANT_CHECKPOINT_DIR": self.backend.checkpoint_dir(run.folder),
            "COTENANT_CHECKPOINT_INTERVAL_S": _NEVER_S,
        }  # fmt: skip
        self.backend.launch(
            LaunchSpec(
                key=key, job=key, workdir=command.workdir or os.getcwd(), argv=command.argv,
                env={**command.env, **mine}, gpus=self._gpus(command), cpus=None if cpus is None else tuple(cpus),
                cpu_share=cpu_share, calls_home=CallHome(self._server.addresses[0], run.token),
            )
        )  # fmt: skip
        return run

    def _gpus(self, command: ProfiledCommand) -> tuple[tuple[str, tuple[int, ...]], ...]:
        if not command.gpus:
            return ()
        node = next((node for node in self.backend.nodes() if node.gpus >= command.gpus), None)
        if node is None and any(node.gpus for node in self.backend.nodes()):
            raise CommandError(f"'{command.name}' wants {command.gpus} GPUs, which no node here has")
        return () if node is None else ((node.name, tuple(range(command.gpus))),)

    def wait(
        self, run: CommandRun, until: Callable[[], bool], limit_s: float, look: Callable[[], object] | None = None
    ) -> bool:
        """Wait until something holds (True), the time is over or the process has ended; `look` is called meanwhile."""
        give_up = time.time() + limit_s
        while not until():
            self._look_at(run)
            if run.end is not None or time.time() >= give_up:
                return until()
            if look is not None:
                look()
            self.backend.wait_change(min(LOOK_S, max(give_up - time.time(), 0.001)))
        return True

    def _look_at(self, run: CommandRun) -> None:
        if run.end is None and time.time() >= run.looked_s + _OBSERVE_S:
            run.looked_s = time.time()
            seen = next((one for one in self.backend.observe() if one.key == run.key), None)
            run.end = seen if seen is not None and seen.state in ("exited", "lost") else None

    def first_step(self, run: CommandRun, limit_s: float) -> None:
        """Wait for its first step; an error that says what is wrong where none comes."""
        if self.wait(run, lambda: run.stepped, limit_s):
            return
        name = run.command.name
        if run.end is not None:
            how = f"signal {run.end.signal}" if run.end.signal is not None else f"exit code {run.end.exit_code}"
            why = "before its first step" if run.called else "without ever calling cotenant.runtime"
            raise CommandError(f"'{name}' ended with {how} {why}{self.last_words(run)}")
        if not run.called:
            raise CommandError(
                f"'{name}' has not called cotenant.runtime in {limit_s:.0f} s: it must use it (see docs/jobs.md),"
                " or needs a larger --budget to start"
            )
        raise CommandError(f"'{name}' has made no step in {limit_s:.0f} s: give a larger --budget")

    def last_words(self, run: CommandRun) -> str:
        """The last line of its standard error, for messages."""
        log = self.backend.open_log(run.key, "stderr")
        end = log.span()[1]
        lines = log.read(max(end - _TAIL, 0), _TAIL).data.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""

    def tell(self, run: CommandRun, settings: Settings) -> None:
        """New settings, from its next step on."""
        run.settings = run.settings.updated(settings)
        self._send(run, Set(**settings.given()))  # type: ignore[arg-type]

    def ask_to_leave(self, run: CommandRun, grace_s: float) -> None:
        """Ask it to save and end."""
        self._send(run, Stop(grace_s))

    def _send(self, run: CommandRun, message: Set | Stop) -> None:
        self._events.call_soon_threadsafe(self._server.send, run.key, message)

    def pause(self, run: CommandRun, patience_s: float = 0.0) -> None:
        """Let it stand still between two steps. With patience: see that it does, or else stop it by a signal.

        Trainers that keep their own loop may not pause there.
        """
        if run.paused:
            return
        run.paused = True
        self.tell(run, Settings(throttle_s=_PAUSE_S))
        give_up = time.time() + patience_s
        while time.time() < give_up:
            steps = run.points[-1][1]
            if not self.wait(run, lambda: run.points[-1][1] > steps, max(0.3, 3 * _gap_s(run))):  # noqa: B023
                return
        if patience_s:
            run.stands = True
        if run.stands:
            _signal(run, signal.SIGSTOP)

    def go_on(self, run: CommandRun) -> None:
        """Undo `pause`."""
        if run.paused:
            run.paused = False
            if run.stands:
                _signal(run, signal.SIGCONT)
            self.tell(run, Settings(throttle_s=0.0))

    def end(self, run: CommandRun) -> None:
        """Kill it, if need be, and remove all traces but its checkpoints."""
        for _ in range(200):
            self._look_at(run)
            if run.end is not None:
                break
            self.backend.kill(run.key)
            self.backend.wait_change(LOOK_S)
        if self.runs.pop(run.key, None) is not None:
            self.backend.forget(run.key)


def _gap_s(run: CommandRun) -> float:
    """The longest recent time between two reports."""
    moments = [at for at, _ in run.points[-5:]]
    return max((two - one for one, two in itertools.pairwise(moments)), default=0.0)


def _signal(run: CommandRun, number: signal.Signals) -> None:
    for pid in {run.pid} | descendants(run.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
