"""One command alone, within a budget of seconds (optimistic profiling: each thing is measured once, none is fitted).

The first run gives the time to start, speed, memory and busy time, then suspension, then saving and leaving. The second
goes on from what was saved: loading, starting with files that are in memory by now, and, from the smallest batch up (an
allocator keeps what it once had), the curve over batches and sub-batches; at last cores. What does not fit into the
budget is left out, and said.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.backends.local import gpus as devices
from cotenant.beliefs.profiling import search
from cotenant.profiler.gauges import GpuGauge, cpu_seconds, memory_gib
from cotenant.profiler.runs import CommandError, CommandRun, ProfiledCommand, Station
from cotenant.profiler.speed import StepRate, rate_since, steady_since, typical
from cotenant.runtime.protocol import Settings
from cotenant.workload.profiles.lifecycle import NAMES, LifecycleRow
from cotenant.workload.profiles.profile_file import Measured, SpeedPoint

PARTS = (4, 2)  # sub-batches, and parts of the batch as batches of their own
_STARTS_S = 60.0  # a first start may take so long, however small the budget
_LEAVE_S, _TERMINATE_S = 60.0, 10.0
_SETTLE_S = 1.0
_LOOK_S = 0.15  # between two looks at GPUs and cores
_FIGURES = ("gpu_gib", "busy", "cores", "mem_gib", "cold_start_s")
ASPECTS = ("suspend", "restart", "batches", "cores")
"""What can be left out by name; start, speed, memory and busy time cannot."""


@dataclass(slots=True)
class Alone:
    """What was found, what took how long, and what could not be measured."""

    measured: Measured
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much to measure. `batches` are those of the curve, the usual parts of the command's own where empty."""

    budget_s: float = 180.0
    aspects: Sequence[str] = ASPECTS
    batches: Sequence[int] = ()
    most_cores: float = 0.0
    least_cores: float = 0.5

    @property
    def window_s(self) -> float:
        """Seconds to count steps at the command's own batch."""
        return min(max(self.budget_s / 15, 2.0), 8.0)


class Measurement:
    """The profiling of one command; `told` hears of every figure as it is found."""

    def __init__(
        self, station: Station, command: ProfiledCommand, wanted: Wanted, told: Callable[[str], object]
    ) -> None:
        self.station, self.command, self.wanted, self.told = station, command, wanted, told
        self.began_s = time.time()
        self.gauge = GpuGauge(gpu_numbers(station, command))
        self.notes: list[str] = []
        self.found: dict[str, float] = {}
        self.points: dict[str, list[SpeedPoint]] = {"batches": [], "sub_batches": []}
        self.by_cores: list[tuple[float, float]] = []
        self.batch = 0
        self.rates: list[StepRate] = []
        self.beginning_s = (
            0.0  # what the steps after the first cost before the speed is steady; often less than nothing
        )
        self._cpu: list[tuple[float, float]] = [(0.0, 0.0)]  # looks at the CPU time of the process

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.began_s + self.wanted.budget_s - time.time()

    def run(self) -> Alone:
        """Measure all that was asked for."""
        if not self.gauge.works:
            self.notes.append("GPU memory and busy time: no driver here tells them")
        first = self.station.start(self.command)
        try:
            self._first(first)
            if "suspend" in self.wanted.aspects:
                self._suspend(first)
            saved = self._leave(first)
            self.station.end(first)
            if {"restart", "batches", "cores"} & set(self.wanted.aspects):
                self._again(first.folder if saved else "")
        finally:
            self.station.end(first)
            self.station.backend.drop_checkpoints(first.folder)
        return Alone(self._result(), time.time() - self.began_s, self.notes)

    # -- the first run ---------------------------------------------------------------------------------------------

    def _first(self, run: CommandRun) -> None:
        self.station.first_step(run, max(self.left_s, _STARTS_S))
        rate = self._measure(run, self.wanted.window_s)
        self.found["gpu_gib"], self.found["busy"] = self.gauge.own_gib(), self.gauge.busy_since(rate.from_s)
        if run.end is None:
            self.found["cores"] = self._cores_since(rate.from_s)
            self.found["mem_gib"] = memory_gib(run.pid)
        self.found["cold_start_s"] = self.found["start_s"] = start_seconds(run, rate)
        self.beginning_s = self.found["start_s"] - first_step_seconds(run, rate)
        self.batch = run.batch
        self.rates.append(rate)
        at_batch = f" at batch {self.batch}" if self.batch else ""
        self.told(f"start {self.found['start_s']:.2f} s, {_said(rate)}{at_batch}")
        if self.gauge.works:
            self.told(f"GPU memory {self.found['gpu_gib']:.2f} GiB, busy {self.found['busy']:.0%}")
        if run.end is None:
            self.told(f"host memory {self.found['mem_gib']:.2f} GiB, {self.found['cores']:.2f} cores")

    def _measure(self, run: CommandRun, window_s: float) -> StepRate:
        """Speed, from where it is steady; of a command that ended meanwhile as far as it came."""
        since = time.time()

        def enough() -> bool:
            steady = steady_since([point for point in run.points if point[0] >= since])
            return steady is not None and time.time() >= steady + window_s

        self.station.wait(run, enough, max(min(4 * window_s, self.left_s), window_s), lambda: self._look(run))
        points = [point for point in run.points if point[0] >= since]
        if len(points) < 3:
            points = run.points[-max(len(run.points) // 2, 3) :]
        steady = steady_since(points)
        rate = rate_since(points, points[len(points) // 2][0] if steady is None else steady) if points else None
        if rate is None:
            ended = " and then ended" if run.end is not None else ""
            raise CommandError(
                f"'{run.command.name}' made too few steps to tell its speed{ended}: let it run for more steps,"
                f" or give a larger --budget{self.station.last_words(run) if ended else ''}"
            )
        return rate

    def _look(self, run: CommandRun) -> None:
        if time.time() >= self._cpu[-1][0] + _LOOK_S:
            self._cpu.append((time.time(), cpu_seconds(run.pid)))
            self.gauge.sample()

    def _cores_since(self, since_s: float) -> float:
        """CPU time over time between the looks from a moment on."""
        looks = [look for look in self._cpu if look[0] >= since_s]
        return (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0]) if len(looks) > 1 else math.nan

    def _suspend(self, run: CommandRun) -> None:
        able = self.station.backend.capabilities()
        if run.end is not None:
            return
        if able.suspend == "none" or (able.gpu == "nvml" and able.gpu_suspend == "none"):
            self.notes.append("suspend, resume: this machine cannot take a job off its GPU")
            return
        needed_s = 0.5 if able.gpu != "nvml" else 2.0 + 0.4 * _known(self.found["gpu_gib"])
        if self.left_s < needed_s + self._restart_s():
            self.notes.append(f"suspend, resume: no time left for about {needed_s:.0f} s")
            return
        began = time.time()
        if not self.station.backend.suspend(run.key):
            self.notes.append("suspend, resume: the driver refused")
            self.station.backend.resume(run.key)
            return
        self.found["suspend_s"] = time.time() - began
        self.station.wait(run, lambda: False, 0.1)  # what it told before it stood still
        began, done = time.time(), run.points[-1][1]
        self.station.backend.resume(run.key)
        self.station.wait(run, lambda: run.points[-1][1] > done, _LEAVE_S)
        self.found["resume_s"] = max(time.time() - began - 1 / self.rates[0].steps_per_s, 0.0)
        self.told(f"suspend {self.found['suspend_s']:.2f} s, resume {self.found['resume_s']:.2f} s")

    def _restart_s(self) -> float:
        """What leaving and starting again will take, about."""
        return self.found["start_s"] + 0.1 * self.wanted.budget_s if "restart" in self.wanted.aspects else 0.0

    def _leave(self, run: CommandRun) -> bool:
        """Ask it to save and leave; whether the second run can go on from there."""
        if run.end is None and not run.saves:
            self.notes.append("save, restore: it does not save checkpoints (see docs/jobs.md)")
            self._terminate(run)
            return False
        asked_s = time.time()
        if run.end is None:
            self.station.ask_to_leave(run, _LEAVE_S)
            self.station.wait(run, lambda: run.end is not None or bool(run.declined), _LEAVE_S)
        if run.declined or run.end is None:
            self.notes.append(f"save, restore, exit: asked to save, it did not: {run.declined or 'no answer in time'}")
            return False
        ended_s = run.end.ended_s or time.time()
        stops = not math.isnan(run.stopping_s)
        if stops:
            self.found["save_s"] = ended_s - asked_s
        else:
            self.notes.append("save: it had ended before it was asked to; let it run for more steps")
        last_s = run.checkpoint[0] - run.checkpoint[1] if run.checkpoint is not None else run.points[-1][0]
        self.found["exit_s"] = max(ended_s - last_s, 0.0)
        self.told((f"save {self.found['save_s']:.2f} s, " if stops else "") + f"exit {self.found['exit_s']:.2f} s")
        return stops

    def _terminate(self, run: CommandRun) -> None:
        """End one that does not save: it leaves after its step, without a checkpoint."""
        self.station.backend.terminate(run.key)
        self.station.wait(run, lambda: run.end is not None, _TERMINATE_S)
        if run.end is not None and not math.isnan(run.stopping_s):
            self.found["exit_s"] = max((run.end.ended_s or time.time()) - run.stopping_s, 0.0)
            self.told(f"exit {self.found['exit_s']:.2f} s")

    # -- the second run --------------------------------------------------------------------------------------------

    def _again(self, saved: str) -> None:
        """Start once more, from the folder of what was saved if there is one; what goes wrong there is only noted."""
        if self.left_s < 0.5 * _known(self.found["start_s"]):
            self.notes.append("restore, batches, cores: no time left; give a larger --budget")
            return
        sizes = self._sizes() if "batches" in self.wanted.aspects else []
        if sizes and self.left_s < self._restart_s():
            self.notes.append("batches: no time left; give a larger --budget")
            sizes = []
        run = self.station.start(self.command, folder=saved, settings=_cut(*sizes[0]) if sizes else Settings())
        try:
            self.station.first_step(run, max(self.left_s, _STARTS_S))
            self._second(run, sizes)
            if "cores" in self.wanted.aspects and run.end is None:
                self._cores(run)
        except CommandError as error:
            self.notes.append(f"second run: {error}")
        finally:
            self.station.end(run)

    def _second(self, run: CommandRun, sizes: Sequence[tuple[int, int]]) -> None:
        """Restoring, the start itself, and speeds from the smallest batch to the usual one."""
        self.found["restore_s"] = run.restored_s
        rates = [rate for size, parts in sizes if (rate := self._at_batch(run, size, parts)) is not None]
        if not rates or self.left_s > _SETTLE_S:
            self.station.tell(run, _cut(self.batch, 1) if sizes else Settings())
            rates.append(self._measure(run, max(min(self.wanted.window_s, self.left_s), _SETTLE_S)))
            self.rates.append(rates[-1])
        started_s = first_step_seconds(run, rates[0]) - _known(run.restored_s)
        self.found["start_s"] = max(started_s + self.beginning_s, 0.0)  # here it begins with another batch
        restored = "" if math.isnan(run.restored_s) else f", restore {run.restored_s:.2f} s"
        self.told(f"started again in {self.found['start_s']:.2f} s{restored}")

    def _sizes(self) -> list[tuple[int, int]]:
        """(batch, sub-batches) to measure, the smallest batch first."""
        if self.batch < 2:
            self.notes.append("batches: the command does not tell the runtime its batch, or it is 1")
            return []
        sizes = set(self.wanted.batches) or {self.batch // part for part in PARTS if self.batch % part == 0}
        plain = [(size, 1) for size in sizes if size != self.batch]
        cut = [(self.batch // part, part) for part in PARTS if self.batch % part == 0] if self.command.cuts else []
        return sorted(plain + cut)

    def _at_batch(self, run: CommandRun, size: int, parts: int) -> StepRate | None:
        cut = f" x {parts} sub-batches" if parts > 1 else ""
        if run.end is not None or self.left_s < _SETTLE_S:
            self.notes.append(f"batch {size}{cut}: no time left")
            return None
        self.station.tell(run, _cut(size, parts))
        rate = self._measure(run, _SETTLE_S)
        at, name = (size, "batches") if parts == 1 else (parts, "sub_batches")
        busy = self.gauge.busy_since(rate.from_s)
        self.points[name].append(SpeedPoint(at, rate.steps_per_s, rate.spread, self.gauge.own_gib(), busy))
        self.told(f"batch {size}{cut}: {_said(rate)}")
        return rate

    def _cores(self, run: CommandRun) -> None:
        """Fewer and fewer cores for the process as it runs."""
        backend, able = self.station.backend, self.station.backend.capabilities()
        most = self.wanted.most_cores or float(sum(node.cpus for node in backend.nodes()) or 1)
        least = min(self.wanted.least_cores, most)
        if not able.cpu_quota and not able.cpu_affinity:
            self.notes.append("cores: this machine can limit neither a job's CPU time nor its cores")
            return
        if not able.cpu_quota:
            most, least = math.floor(most), max(1, math.ceil(least))
        found: list[tuple[float, float]] = []

        def measure(cores: float) -> float:
            if self.left_s < _SETTLE_S:
                raise TimeoutError
            limited = (
                backend.set_limits(run.key, cpu_share=cores)
                if able.cpu_quota
                else backend.set_limits(run.key, cpus=range(round(cores)))
            )
            if not limited:
                raise TimeoutError
            self.station.tell(run, Settings(workers=max(1, math.ceil(cores))))
            rate = self._measure(run, _SETTLE_S)
            found.append((cores, rate.steps_per_s))
            self.told(f"{cores:6.2f} cores: {_said(rate)}")
            return rate.steps_per_s

        try:
            search(measure, most, least)
        except TimeoutError:
            self.notes.append("cores: no time left for all points" if found else "cores: no time left")
        if len(found) > 1:
            self.by_cores = sorted(dict(found).items())

    def _result(self) -> Measured:
        rate = typical(self.rates)
        cycle = LifecycleRow(*(self.found.get(name, math.nan) for name in NAMES))
        values: dict[str, Any] = {name: self.found.get(name, math.nan) for name in _FIGURES}
        values |= {name: tuple(sorted(points, key=lambda point: point.at)) for name, points in self.points.items()}
        return Measured(
            self.batch, rate.steps_per_s, rate.spread, lifecycle=cycle, by_cores=tuple(self.by_cores), **values
        )  # fmt: skip


def gpu_numbers(station: Station, command: ProfiledCommand) -> list[int]:
    """The driver's numbers of the GPUs that a command gets; none of virtual ones."""
    real = station.backend.capabilities().gpu == "nvml"
    return [gpu.index for gpu in devices.find()[: command.gpus]] if real else []


def start_seconds(run: CommandRun, rate: StepRate) -> float:
    """From the launch to the first finished step, as if all later ones had been as fast as they are by now.

    So what further slow steps cost at the beginning is part of it, and what a GPU that is still cool gains.
    """
    done = next(step for at, step in run.points if at >= rate.from_s)
    return max(rate.from_s - run.began_s - (done - run.base - 1) / rate.steps_per_s, 0.0)


def first_step_seconds(run: CommandRun, rate: StepRate) -> float:
    """From the launch to the first finished step; where a later one was told first, less what it took since."""
    at_s, done = next((at, step) for at, step in run.points if step > run.base)
    return at_s - run.began_s - (done - run.base - 1) / rate.steps_per_s


def _cut(size: int, parts: int) -> Settings:
    return Settings(batch_size=size, accumulation=parts) if size else Settings()


def _said(rate: StepRate) -> str:
    return f"{rate.steps_per_s:.3f} steps/s" + ("" if math.isnan(rate.spread) else f" (+-{rate.spread:.1%})")


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value
