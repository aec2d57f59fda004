"""Commands beside each other: all are started once and stand still between two steps; pairs of them run in turn.

So a pair costs the seconds of its measurement and no start. What the GPU's memory cannot hold at once is started again
when its turn comes. Speeds in company are against those of the same processes alone, measured in the same way after
every group of pairs, so before the next one, too: never right after a start, as the first seconds of a process may be
a third faster than all that follow, and all pairs of its model would look slow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cotenant.profiler.runs import CommandError, CommandRun, ProfiledCommand, Station
from cotenant.profiler.speed import StepRate, rate_since, typical
from cotenant.workload.profiles.profile_file import MeasuredPair

_PATIENCE_S, _SETTLE_S = 10.0, 0.5
_STEPS = 3  # a slow command makes at least so many in a measurement
_FILLED = 0.95  # of the GPU's memory
_GROUP = 14  # pairs between two measurements of speeds alone


@dataclass(frozen=True, slots=True)
class Company:
    """What pairs are measured with: seconds for each, for a start and until a command that has started is warm; GiB per
    command, GiB of the GPU, and how many are started side by side."""

    window_s: float = 2.0
    start_s: float = 120.0
    warm_s: float = 3.0
    need_gib: Mapping[str, float] | None = None
    gpu_gib: float = math.inf
    at_once: int = 4


def measure_pairs(
    station: Station, commands: Mapping[str, ProfiledCommand], todo: Sequence[tuple[str, str]], company: Company,
    gpu_type: str, share: str, told: Callable[[str], object], late: Callable[[], bool] = lambda: False,
) -> Iterator[MeasuredPair | CommandError | None]:  # fmt: skip
    """The pairs; None in the place of one that does not fit, an error of one that could not be measured.

    They come in groups, each when its speeds alone are known. Once it is `late` no more are begun.
    """
    standing = PausedRuns(station, commands, company)
    for first in range(0, len(todo), _GROUP):
        seen: list[tuple[str, str, list[StepRate]]] = []
        for at, (a, b) in enumerate(todo[first : first + _GROUP], first):
            if late():
                break
            try:
                if standing.fits(a, b):
                    later = [name for pair in todo[at:] for name in _processes(*pair)]
                    seen.append((a, b, standing.together(a, b, later)))
                else:
                    told(f"{a} beside {b}: they do not fit into {company.gpu_gib:.0f} GiB together")
                    yield None
            except CommandError as error:
                yield CommandError(f"{a} beside {b}: {error}")
        for a, b, rates in seen:
            try:
                alone = [standing.alone(name) for name in _processes(a, b)]
            except CommandError as error:
                yield CommandError(f"{a} beside {b}: {error}")
                continue
            yield (pair := _pair(gpu_type, share, (a, b), rates, alone))
            told(f"{a} beside {b}: {pair.a_speed:.3f} and {pair.b_speed:.3f} of their speeds alone")
    standing.end()


def _pair(
    gpu_type: str, share: str, names: tuple[str, str], rates: Sequence[StepRate], alone: Sequence[StepRate]
) -> MeasuredPair:
    speeds = [rate.steps_per_s / own.steps_per_s for rate, own in zip(rates, alone, strict=True)]
    spreads = [math.hypot(_known(rate.spread), _known(own.spread)) for rate, own in zip(rates, alone, strict=True)]
    return MeasuredPair(gpu_type, share, *names, *speeds, *spreads, *(own.steps_per_s for own in alone))


class PausedRuns:
    """Processes that are warm and stand still, as many as fit."""

    def __init__(self, station: Station, commands: Mapping[str, ProfiledCommand], company: Company) -> None:
        self.station, self.commands, self.company = station, commands, company
        self.runs: dict[str, CommandRun] = {}
        self._alone: dict[str, list[StepRate]] = {}
        self._due: set[str] = set()  # whose speed alone was not measured since it ran beside somebody

    def need_gib(self, name: str) -> float:
        """GPU memory of a command; 0 where it is not known."""
        return _known((self.company.need_gib or {}).get(_plain(name), 0.0))

    def fits(self, *names: str) -> bool:
        """Whether these can be on the GPU at once."""
        return sum(self.need_gib(name) for name in names) <= _FILLED * self.company.gpu_gib

    def together(self, a: str, b: str, later: Sequence[str]) -> list[StepRate]:
        """Speeds of two side by side; once more where one of them had come to its end."""
        names = _processes(a, b)
        runs = self._standing(names, later)
        try:
            rates = self._measure(runs)
        except CommandError:
            if all(run.end is None for run in runs):
                raise
            rates = self._measure(self._standing(names, later))
        self._due.update(names)
        return rates

    def alone(self, name: str) -> StepRate:
        """Its speed while all others stand, after what it did beside others and, if known, before."""
        if name in self._due:
            self._measure_alone(name, self._standing([name], list(self.runs))[0])
        return typical(self._alone[name][-2:])

    def _measure_alone(self, name: str, run: CommandRun) -> None:
        self._alone.setdefault(name, []).append(self._measure([run])[0])
        self._due.discard(name)

    def _standing(self, wanted: Sequence[str], later: Sequence[str]) -> list[CommandRun]:
        """Runs that stand still, started if need be, with others that come later as far as they fit."""
        ahead = [name for name in dict.fromkeys((*wanted, *later)) if name not in self.runs or self._gone(name)]
        missing = [name for name in ahead if name in wanted]
        if missing:
            for name in [name for name in self.runs if name not in (*wanted, *later) or self._gone(name)]:
                self._drop(name)
            for name in list(self.runs):
                if name not in wanted and not self.fits(*self.runs, *missing):
                    self._drop(name)
            for name in ahead:
                small = len(missing) < self.company.at_once and name not in missing
                if small and self.fits(*self.runs, *missing, name):
                    missing.append(name)
            self._start(missing)
        return [self.runs[name] for name in wanted]

    def _gone(self, name: str) -> bool:
        """Whether its process has ended."""
        run = self.runs.get(name)
        if run is None:
            return False
        self.station.wait(run, lambda: True, 0.0)
        return run.end is not None

    def _start(self, names: Sequence[str]) -> None:
        """Start commands side by side, and let all run until the last of them is warm."""
        for name in names:
            self.runs[name] = self.station.start(self.commands[_plain(name)])
        for name in names:
            try:
                self.station.first_step(self.runs[name], self.company.start_s)
            except CommandError:
                self._drop(name)
                raise
        self.station.wait(self.runs[names[-1]], lambda: False, self.company.warm_s)
        for name in names:
            self.station.pause(self.runs[name], _PATIENCE_S)

    def _measure(self, runs: Sequence[CommandRun]) -> list[StepRate]:
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

    def _drop(self, name: str) -> None:
        """End a process; what it does alone is measured before, if that is still to be known and it lives."""
        run = self.runs.pop(name)
        if name in self._due and run.end is None:
            self._measure_alone(name, run)
        self.station.end(run)
        self.station.backend.drop_checkpoints(run.folder)

    def end(self) -> None:
        """End all processes."""
        self._due.clear()
        for name in list(self.runs):
            self._drop(name)


def _after(run: CommandRun, since_s: float) -> list[tuple[float, int]]:
    return [point for point in run.points if point[0] >= since_s]


def _processes(a: str, b: str) -> list[str]:
    """Names of the processes of a pair: a command beside itself is two."""
    return [a, f"{a}\0" if a == b else b]


def _plain(name: str) -> str:
    return name.rstrip("\0")


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value
