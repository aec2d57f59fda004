"""Commands beside each other: all are started once and stand still between two steps; pairs of them run in turn.

So a pair costs the seconds of its measurement and no start. What the GPU's memory cannot hold at once is started again
when its turn comes. Speeds in company are against those of the same processes alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cotenant.profiler.runs import CommandError, CommandRun, ProfiledCommand, Station
from cotenant.profiler.speed import StepRate, rate_since, steady_since
from cotenant.workload.profiles.profile_file import MeasuredPair

_PATIENCE_S, _COLD_S, _SETTLE_S = 10.0, 10.0, 0.5
_STEPS = 3  # a slow command makes at least so many in a measurement
_FILLED = 0.95  # of the GPU's memory


@dataclass(frozen=True, slots=True)
class Company:
    """What pairs are measured with: seconds for each pair, for a start, GiB per command, GiB of the GPU."""

    window_s: float = 2.0
    start_s: float = 120.0
    need_gib: Mapping[str, float] | None = None
    gpu_gib: float = math.inf
    at_once: int = 4  # starts side by side


def measure_pairs(
    station: Station, commands: Mapping[str, ProfiledCommand], todo: Sequence[tuple[str, str]], company: Company,
    gpu_type: str, share: str, told: Callable[[str], object],
) -> Iterator[MeasuredPair | CommandError | None]:  # fmt: skip
    """The pairs in turn; None in the place of one that does not fit, an error of one that could not be measured."""
    standing = PausedRuns(station, commands, company)
    for at, (a, b) in enumerate(todo):
        try:
            if not standing.fits(a, b):
                told(f"{a} beside {b}: they do not fit into {company.gpu_gib:.0f} GiB together")
                yield None
                continue
            speeds = standing.together(a, b, [name for pair in todo[at:] for name in pair])
            pair = MeasuredPair(gpu_type, share, a, b, *(speed for speed, _ in speeds), *(off for _, off in speeds))
            told(f"{a} beside {b}: {pair.a_speed:.3f} and {pair.b_speed:.3f} of their speeds alone")
            yield pair
        except CommandError as error:
            yield CommandError(f"{a} beside {b}: {error}")
    standing.end()


class PausedRuns:
    """Processes that are warm and stand still, as many as fit."""

    def __init__(self, station: Station, commands: Mapping[str, ProfiledCommand], company: Company) -> None:
        self.station, self.commands, self.company = station, commands, company
        self.runs: dict[str, CommandRun] = {}
        self.alone: dict[str, StepRate] = {}

    def need_gib(self, name: str) -> float:
        """GPU memory of a command; 0 where it is not known."""
        need = (self.company.need_gib or {}).get(_plain(name), 0.0)
        return 0.0 if math.isnan(need) else need

    def fits(self, *names: str) -> bool:
        """Whether these can be on the GPU at once."""
        return sum(self.need_gib(name) for name in names) <= _FILLED * self.company.gpu_gib

    def both(self, a: str, b: str, later: Sequence[str]) -> tuple[CommandRun, CommandRun]:
        """Two runs that stand still, started if need be, with others that come later as far as they fit.

        A command beside itself is two processes.
        """
        wanted = [a, _twin(a) if a == b else b]
        ahead = [name for name in dict.fromkeys((*wanted, *later)) if name not in self.runs or self.gone(name)]
        missing = [name for name in ahead if name in wanted]
        if missing:
            for name in [name for name in self.runs if name not in (*wanted, *later) or self.gone(name)]:
                self._drop(name)
            for name in list(self.runs):
                if name not in wanted and not self.fits(*self.runs, *missing):
                    self._drop(name)
            for name in ahead:
                small = len(missing) < self.company.at_once and name not in missing
                if small and self.fits(*self.runs, *missing, name):
                    missing.append(name)
            self._start(missing)
        return self.runs[wanted[0]], self.runs[wanted[1]]

    def gone(self, name: str) -> bool:
        """Whether its process has ended."""
        run = self.runs.get(name)
        if run is None:
            return False
        self.station.wait(run, lambda: True, 0.0)
        return run.end is not None

    def _start(self, names: Sequence[str]) -> None:
        """Start commands side by side, then measure each alone while the others stand."""
        for name in names:
            self.runs[name] = self.station.start(self.commands[_plain(name)])
        for name in names:
            try:
                self.station.first_step(self.runs[name], self.company.start_s)
            except CommandError:
                self._drop(name)
                raise
            self.station.pause(self.runs[name], _PATIENCE_S)
        for name in names:
            self.alone[name] = self._measure_alone(self.runs[name])

    def _measure_alone(self, run: CommandRun) -> StepRate:
        """Its speed, from where it is steady: some of its first steps may still be ahead."""
        since, window_s = time.time(), self.company.window_s
        self.station.go_on(run)

        def enough() -> bool:
            begin = steady_since(_after(run, since))
            return begin is not None and time.time() >= begin + window_s

        self.station.wait(run, enough, 5 * window_s + _COLD_S)
        points = _after(run, since)
        begin = steady_since(points)
        rate = rate_since(points, since + window_s if begin is None else begin)
        self.station.pause(run)
        if rate is None:
            raise CommandError(f"'{run.command.name}' made too few steps to tell its speed alone")
        return rate

    def _measure_both(self, *runs: CommandRun) -> list[StepRate]:
        """Speeds of processes that are warm and run at the same time, after a moment to settle."""
        since = time.time() + _SETTLE_S
        for run in runs:
            self.station.go_on(run)

        def enough() -> bool:
            return time.time() >= since + self.company.window_s and all(
                len(_after(run, since)) > _STEPS for run in runs
            )

        self.station.wait(runs[0], enough, _SETTLE_S + 5 * self.company.window_s)
        rates = [rate_since(_after(run, since), since) for run in runs]
        for run in runs:
            self.station.pause(run)
        found = [rate for rate in rates if rate is not None]
        if len(found) < len(runs):
            slow = runs[rates.index(None)].command.name
            raise CommandError(f"'{slow}' made too few steps in {5 * self.company.window_s:.0f} s: give more --seconds")
        return found

    def together(self, a: str, b: str, later: Sequence[str]) -> list[tuple[float, float]]:
        """(speed against alone, spread) of each of two; once more where one of them had come to its end."""
        one, two = self.both(a, b, later)
        try:
            rates = self._measure_both(one, two)
        except CommandError:
            if one.end is None and two.end is None:
                raise
            one, two = self.both(a, b, later)
            rates = self._measure_both(one, two)
        names = {run.key: name for name, run in self.runs.items()}
        found = []
        for run, rate in zip((one, two), rates, strict=True):
            alone = self.alone[names[run.key]]
            spread = math.hypot(*(0.0 if math.isnan(x) else x for x in (rate.spread, alone.spread)))
            found.append((rate.steps_per_s / alone.steps_per_s, spread))
        return found

    def _drop(self, name: str) -> None:
        run = self.runs.pop(name)
        self.station.end(run)
        self.station.backend.drop_checkpoints(run.folder)

    def end(self) -> None:
        """End all processes."""
        for name in list(self.runs):
            self._drop(name)


def _after(run: CommandRun, since_s: float) -> list[tuple[float, int]]:
    return [point for point in run.points if point[0] >= since_s]


def _twin(name: str) -> str:
    """The name of a second process of a command."""
    return f"{name}\0"


def _plain(name: str) -> str:
    return name.rstrip("\0")
