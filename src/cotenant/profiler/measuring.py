"""Steps per second of a command by cores, each point from a fresh start.

A limit of cores is a quota of the control group where one can be had, so that half a core is a point too; else the
command is bound to whole cores. Which points are measured is the search of `cotenant.beliefs.profiling`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.backends.base import Backend
from cotenant.beliefs.profiling import search
from cotenant.core.errors import CotenantError, InputError
from cotenant.profiler.runs import CommandError, ProfiledCommand, Station
from cotenant.profiler.speed import rate_since
from cotenant.runtime.protocol import Settings
from cotenant.workload.profiles.curves import Curve

_START_S = 60.0  # a script that reports no step for so long is not going to


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """A curve, and what it took to find."""

    curve: Curve
    measurements: int
    seconds: float


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
    command = ProfiledCommand("the command", tuple(argv), workdir, env or {}, gpus=0)
    with Station(backend) as station:

        def measure(cores: float) -> float:
            rate = _with_cores(station, command, cores, seconds, warm_s)
            if told is not None:
                told(cores, rate)
            return rate

        found = search(measure, most, least)
    order = np.argsort(found.cpus)
    cores, rates = np.array(found.cpus)[order], np.array(found.speeds)[order]
    return MeasuredCurve(Curve.measured(cores, rates), found.measurements, time.monotonic() - began)


def _with_cores(station: Station, command: ProfiledCommand, cores: float, seconds: float, warm_s: float) -> float:
    """Steps per second with this many cores."""
    quota = station.backend.capabilities().cpu_quota
    limits = {"cpu_share": cores} if quota else {"cpus": range(round(cores))}
    run = station.start(command, settings=Settings(workers=max(1, math.ceil(cores))), **limits)
    try:
        station.first_step(run, _START_S)
        since_s = time.time() + warm_s
        station.wait(run, lambda: time.time() >= since_s + seconds, warm_s + seconds)
        rate = rate_since(run.points, since_s)
        if rate is None:
            raise CommandError("the command reported too few steps: let it run longer than the measurement")
        return rate.steps_per_s
    finally:
        station.end(run)
        station.backend.drop_checkpoints(run.folder)
