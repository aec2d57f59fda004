"""The service of `bench.crash`: forked from a process that has everything imported, and told where to die."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from bench.crash_jobs import in_parts, most_on_gpu
from bench.crash_known import Known, Watched, knows
from cotenant.backends.local.isolation.levels import Isolation
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Conflict, Role
from cotenant.service.options import Options
from cotenant.service.run import Loop, Site, first_token, open_service

ME = Caller("bench", Role.ADMIN)
GRACE_S = 0.15
ROUND_S = 0.5
LONGEST = 150  # steps a service may take while it waits for a step of the chosen kind


def isolation(home: Path, options: argparse.Namespace) -> Isolation:
    """How tenants are kept apart; their files are beside the home."""
    return Isolation(options.isolation, folder=str(home.parent / "tenants"))


def site(home: Path, options: argparse.Namespace) -> Site:
    """The same, as a service is told it."""
    backend = "local" if options.isolation == "none" else f"local:tenant_files={home.parent / 'tenants'}"
    return Site(backend=backend, gpus=options.gpus, isolation=options.isolation)


class Service:
    """A forked service and the line to it."""

    def __init__(self, home: Path, options: argparse.Namespace, kill: tuple[str, Any]) -> None:
        self._line, theirs = socket.socketpair()
        self._heard = b""
        self.fell = ""
        self.known: Known = {}  # what it said last that it knows
        how, what = kill
        self._deadline = time.monotonic() + what if how == "instant" else float("inf")
        self.pid = os.fork()
        if self.pid == 0:
            self._line.close()
            _be_service(theirs, home, options, kill)
        theirs.close()

    def ask(self, *request: Any) -> Any:
        """The answer, or None when the service is dead."""
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._heard:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._line], [], [], min(left, 60.0))[0]:
                self.fall("instant" if left <= 60.0 else "no answer for 60 s")
                return None
            try:
                data = self._line.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self.fall("")
                return None
            self._heard += data
        text, _, self._heard = self._heard.partition(b"\n")
        answer = json.loads(text)
        self.known = answer["known"]
        if "point" in answer:
            self.fall(answer["point"])
            return None
        return answer["answer"]

    def rest(self, seconds: float) -> None:
        """Let it work for a while, or kill it when its time has come."""
        time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))

    def fall(self, why: str) -> None:
        """It is dead, or is killed now."""
        if why:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        self._line.close()
        by_itself = not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
        self.fell = f"by itself: {status}" if by_itself else why or "unknown"

    def end(self) -> bool:
        """Ask it to end in an orderly way; False when it was killed on the way."""
        if self.ask("end") is None:
            return False
        os.waitpid(self.pid, 0)
        self._line.close()
        return True


def _be_service(line: socket.socket, home: Path, options: argparse.Namespace, kill: tuple[str, Any]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stderr = os.open(home.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stderr, 2)
        _serve(line, home, options, kill)
        code = 0
    except BaseException as error:
        os.write(2, f"the service died: {error!r}\n".encode())
    finally:
        os._exit(code)


def _serve(line: socket.socket, home: Path, options: argparse.Namespace, kill: tuple[str, Any]) -> None:
    how, what = kill
    count, service = 0, None
    most, parts = most_on_gpu(options.policy), in_parts(options.policy)

    def hook(point: str) -> None:
        nonlocal count
        count += 1
        if service is not None and point in ("before:launched", "before:wake", "before:go"):
            _check_company(service, most, parts)
        if (how == "step" and count >= what) or (how == "kind" and (point == what or count >= LONGEST)):
            known: Known = {}
            if service is not None:
                with service.store.lock:
                    known = knows(service.store.book)
            line.sendall(json.dumps({"point": point, "known": known}).encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)

    settings = Options(
        home,
        GRACE_S,
        hook=hook,
        max_suspended=2,
        round_s=ROUND_S,
        profile=options.profile,
        policy=options.policy,
        prefetch_starts=options.prefetch,
    )
    service = open_service(settings, site(home, options))
    first_token(service, home)
    _listen(service)
    watched = Watched(service)
    scheduler = Loop(watched)  # type: ignore[arg-type]
    scheduler.start()
    for text in line.makefile("r"):
        verb, *args = json.loads(text)
        answer: Any = True
        if verb == "submit":
            answer = service.desk.submit(ME, [JobSpec.from_dict(spec) for spec in args[0]])
        elif verb == "jobs":
            answer = [[info.id, info.name, info.state] for info in service.desk.jobs(ME)]
        elif verb == "end":
            scheduler.stop()
            for _ in range(50):
                if not service.backend.observe():
                    break
                service.backend.wait_change(0.1)
                watched.tick()
            service.close()
        else:
            with contextlib.suppress(Conflict):
                getattr(service.desk, verb)(ME, *args)
        line.sendall(json.dumps({"answer": answer, "known": watched.known}).encode() + b"\n")
        if verb == "end":
            return


def _listen(service: CoreService) -> None:
    """Hear what jobs say of themselves, in a thread of its own."""
    events = asyncio.new_event_loop()
    threading.Thread(target=events.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(service.reports.start(), events).result(10)


def _check_company(service: CoreService, most: int, parts: bool) -> None:
    """Before anybody comes to GPUs: whether those who are there by the book may be there together."""
    with service.store.lock:
        jobs = [job for job in service.store.book.on_gpus.values() if job.state != JobState.STOPPING]
    there: dict[tuple[str, int], list[Any]] = {}
    for job in jobs:
        for node, indexes in job.last.gpus:
            for index in indexes:
                there.setdefault((node, index), []).append(job)
    for cell, users in there.items():
        turns = {service.executor.terms.of(job).turn for job in users} - {0}
        alike = parts or len({job.last.gpus for job in users}) == 1
        if len(users) > most or len(turns) > 1 or not alike:
            names = ", ".join(
                f"{job.key} {job.state} {job.last.gpus} turn {service.executor.terms.of(job).turn}" for job in users
            )
            os.write(2, f"GPU {cell} has {names}\n".encode())
