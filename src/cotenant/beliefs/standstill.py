"""The speed of a job alone while it is not: the one beside it stands still for a moment.

Who stands still does so between two of its steps and counts the seconds itself. So nobody has to let it go on, and a
service that dies meanwhile leaves nothing behind. From when on it stands is not told; it is taken to be when a step of
it must be over. What the other does from then on counts, unless the first was seen to make steps all the same: its
runtime may be too old to know of this. It costs a job two or three seconds (seven, where steps are long), once for
each neighbour, and is not done to those who are nearly done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cotenant.beliefs.watched import Told, Watched

STEPS, LEAST_S, MOST_S = 20, 1.0, 4.0  # of the one that is measured: so many steps, within this time
LEAST_STEPS = 2  # or nothing can be said
WORTH = 20  # times as long as that both must have left
LONGEST_STEP_S = 3.0  # of the one that stands still: or it would take too long until it does
MOST = 3  # times that an attempt stands still
_WORD_S = 0.3  # until it has heard of it


@dataclass(frozen=True, slots=True)
class Standstill:
    """One job is to stand still for so many seconds, so that another can be measured."""

    job: str
    other: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _UnderWay:
    still: Watched
    moves: Watched
    from_s: float
    until_s: float


@dataclass(slots=True)
class Standstills:
    """Who was asked to stand still, and what came of it. `asked` are new ones, for whoever carries them out."""

    asked: list[Standstill] = field(default_factory=list)
    _under_way: dict[tuple[str, str], _UnderWay] = field(default_factory=dict)
    _done: set[tuple[str, str]] = field(default_factory=set)
    _times: Counter[str] = field(default_factory=Counter)

    def ask(
        self, still: Watched, moves: Watched, steps_s: tuple[float, float], left_s: float, now_s: float
    ) -> bool | None:
        """Have one stand still to measure the other; whether that can be done, at most once for the two.

        `steps_s` are steps of both in company, `left_s` what the sooner of them has left. None: it is not worth while.
        """
        pair = still.key, moves.key
        if pair in self._done or self._times[still.key] >= MOST or steps_s[0] > LONGEST_STEP_S:
            return False
        lead_s = steps_s[0] + _WORD_S
        seconds = lead_s + min(max(STEPS * steps_s[1], LEAST_S), MOST_S)
        if left_s < WORTH * seconds:
            return None
        self._done.add(pair)
        self._times[still.key] += 1
        self._under_way[pair] = _UnderWay(still, moves, now_s + lead_s, now_s + seconds)
        self.asked.append(Standstill(still.id, moves.id, round(seconds, 3)))
        return True

    def concerns(self, key: str) -> bool:
        """Whether an attempt stands still, or is being measured."""
        return any(key in pair for pair in self._under_way)

    def over(
        self, report_of: Callable[[str], Told | None], now_s: float
    ) -> Iterator[tuple[Watched, Watched, float | None]]:
        """Of those that are over: who stood, who was measured, and its seconds per step, if any can be told."""
        for pair, asked in list(self._under_way.items()):
            if now_s >= asked.until_s:
                del self._under_way[pair]
                marks = (_marks(report_of(job.id), asked) for job in (asked.still, asked.moves))
                yield asked.still, asked.moves, _step_s(*marks)

    def forget(self, alive: set[str]) -> None:
        """Attempts that are over."""
        for pair in [pair for pair in self._done if not alive.issuperset(pair)]:
            self._done.discard(pair)
            self._under_way.pop(pair, None)
        for key in self._times.keys() - alive:
            del self._times[key]

    def copy(self) -> Standstills:
        """As it is now, for somebody who carries nothing out."""
        return Standstills([], dict(self._under_way), set(self._done), Counter(self._times))


def _marks(report: Told | None, asked: _UnderWay) -> list[tuple[float, int]]:
    marks: Sequence[tuple[float, int]] = report.marks if report is not None else ()
    return [mark for mark in marks if asked.from_s <= mark[0] <= asked.until_s]


def _step_s(stood: list[tuple[float, int]], moved: list[tuple[float, int]]) -> float | None:
    """Seconds per step of the one that moved, while the other stood: it may end one step, and begins the next after."""
    if len(moved) < 2 or (stood and stood[-1][1] > stood[0][1]):
        return None
    steps = moved[-1][1] - moved[0][1]
    return (moved[-1][0] - moved[0][0]) / steps if steps >= LEAST_STEPS else None
