"""Run a command for some seconds with so many cores, and count the steps that its runtime reports.

The command must use `cotenant.runtime` (that is where steps come from). Each point is a fresh start under a limit of
cores: a quota of its control group where one can be had, so that half a core is a point too; else bound to whole cores.
Which points are measured is the search of `cotenant.beliefs.profiling`.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from cotenant.backends.base import Backend, CallHome, LaunchSpec
from cotenant.beliefs.profiling import search
from cotenant.core.errors import CotenantError, InputError
from cotenant.runtime.protocol import Hello, JobMessage, Progress, Settings
from cotenant.runtime.server import RuntimeServer
from cotenant.workload.profiles.curves import Curve

_START_S = 60.0  # a script that reports no step for so long is not going to
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """A curve, and what it took to find."""

    curve: Curve
    measurements: int
    seconds: float


@dataclass(slots=True)
class _Seen:
    """Steps of the run in progress: (moment, finished steps)."""

    token: str = ""
    workers: int = 1
    points: list[tuple[float, int]] = field(default_factory=list)


def profile_cores(
    backend: Backend, argv: Sequence[str], *, most: float, least: float, seconds: float = 3.0, warm_s: float = 1.0,
    env: dict[str, str] | None = None, workdir: str = "", told: Callable[[float, float], None] | None = None,
) -> MeasuredCurve:  # fmt: skip
    """Steps per second of a command by cores, from `least` to `most`. `told(cores, rate)` hears of every point."""
    if not 0 < least <= most < math.inf:
        raise InputError(f"cores from {least:g} to {most:g}: both must be positive, and the first not above the second")
    able = backend.capabilities()
    if not able.cpu_quota and not able.cpu_affinity:
        raise CotenantError("this machine can limit neither a job's CPU time nor its cores: nothing to measure")
    if not able.cpu_quota:
        most, least = math.floor(most), max(1, math.ceil(least))
    began = time.monotonic()
    with _listening(backend.listen_at()) as (address, seen):

        def measure(cores: float) -> float:
            rate = _run(backend, argv, cores, seconds, warm_s, env or {}, workdir, seen, address)
            if told is not None:
                told(cores, rate)
            return rate

        found = search(measure, most, least)
    order = np.argsort(found.cpus)
    cores, rates = np.array(found.cpus)[order], np.array(found.speeds)[order]
    return MeasuredCurve(Curve(cores, np.maximum.accumulate(rates)), found.measurements, time.monotonic() - began)


def _run(
    backend: Backend, argv: Sequence[str], cores: float, seconds: float, warm_s: float, env: dict[str, str],
    workdir: str, seen: _Seen, address: str,
) -> float:  # fmt: skip
    """Steps per second with this many cores."""
    key = f"profile-{secrets.token_hex(4)}"
    seen.token, seen.workers, seen.points = secrets.token_hex(16), max(1, math.ceil(cores)), []
    mine = {"COTENANT_JOB_ID": key, "COTENANT_CHECKPOINT_DIR": backend.checkpoint_dir(key)}
    quota = backend.capabilities().cpu_quota
    try:
        backend.launch(
            LaunchSpec(
                key=key, job=key, workdir=workdir or os.getcwd(), argv=tuple(argv), env={**env, **mine},
                cpus=None if quota else tuple(range(round(cores))), cpu_share=cores if quota else None,
                calls_home=CallHome(address, seen.token),
            )
        )  # fmt: skip
        return _watch(backend, key, seconds, warm_s, seen)
    finally:
        _end(backend, key)
        backend.drop_checkpoints(key)


def _watch(backend: Backend, key: str, seconds: float, warm_s: float, seen: _Seen) -> float:
    limit = time.monotonic() + _START_S
    until = math.inf
    while time.monotonic() < min(limit, until):
        if seen.points and until == math.inf:
            until = limit = seen.points[0][0] + warm_s + seconds
        states = {item.key: item for item in backend.observe()}
        if key in states and states[key].state in ("exited", "lost"):
            break
        time.sleep(_LOOK_S)
    points = [point for point in seen.points if point[0] >= seen.points[0][0] + warm_s] if seen.points else []
    if len(points) < 2 or points[-1][1] <= points[0][1]:
        raise CotenantError(
            "the command reported too few steps: it must use cotenant.runtime and run longer than the measurement"
        )
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def _end(backend: Backend, key: str) -> None:
    """Kill the run and wait until nothing of it is left."""
    for _ in range(200):
        backend.kill(key)
        if all(item.key != key or item.state in ("exited", "lost") for item in backend.observe()):
            backend.forget(key)
            return
        time.sleep(_LOOK_S)


@contextmanager
def _listening(addresses: Sequence[str]) -> Iterator[tuple[str, _Seen]]:
    """Where the command's runtime calls, on a thread of its own."""
    seen = _Seen()

    def known(hello: Hello) -> Settings | None:
        return Settings(workers=seen.workers) if secrets.compare_digest(hello.token, seen.token) else None

    def heard(hello: Hello, message: JobMessage) -> None:
        if isinstance(message, Progress) and hello.token == seen.token:
            seen.points.append((time.monotonic(), message.step))

    events = asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()
    server = RuntimeServer(addresses, known, heard)
    asyncio.run_coroutine_threadsafe(server.start(), events).result()
    try:
        yield server.addresses[0], seen
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), events).result()
        events.call_soon_threadsafe(events.stop)
        thread.join()
