"""What each rung of the preemption ladder really cost, by name of the job and over all jobs.

Jobs of one name are taken for jobs of one kind: there is no other mark of a model in what people submit. A name that
was never preempted is believed to cost what all others did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

MOST_NAMES = 1000  # the oldest are dropped
_ALL = ""


@dataclass(slots=True)
class RungCost:
    """Sums over `taken` preemptions, in seconds: order until the GPUs were free, work lost; and over `resumed`."""

    taken: int = 0
    free_s: float = 0.0
    lost_s: float = 0.0
    resumed: int = 0
    resume_s: float = 0.0


class Costs:
    """Measured costs per (name, rung); the empty name and the empty rung stand for all."""

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        self._of = {(name, rung): RungCost(*sums) for name, rung, *sums in rows}
        self._names = list(dict.fromkeys(name for name, _ in self._of if name))
        self.news: set[str] = set()  # names of which more is known, for whoever copies costs: he empties it

    def add_taken(self, name: str, rung: str, free_s: float, lost_s: float) -> None:
        """A rung was taken: the GPUs were free after so long, and so much work was lost."""
        for cost in self._touched(name, rung):
            cost.taken, cost.free_s, cost.lost_s = cost.taken + 1, cost.free_s + free_s, cost.lost_s + lost_s

    def add_lost(self, name: str, rung: str, lost_s: float) -> None:
        """Work of a preemption that was counted before turned out to be lost."""
        for cost in self._touched(name, rung):
            cost.lost_s += lost_s

    def add_resumed(self, name: str, rung: str, resume_s: float) -> None:
        """To go on took so long."""
        for cost in self._touched(name, rung):
            cost.resumed, cost.resume_s = cost.resumed + 1, cost.resume_s + resume_s

    def of(self, name: str = _ALL, rung: str = _ALL) -> RungCost:
        """The sums of a name and rung."""
        return self._of.get((name, rung), RungCost())

    def mean_s(self, unknown_s: float) -> float:
        """Seconds that a preemption costs in all, over all jobs and rungs; `unknown_s` before any was measured."""
        mean = _mean_s(self.of())
        return unknown_s if mean is None else mean

    def rows(self) -> list[list[Any]]:
        """Everything as plain data."""
        return [[name, rung, *astuple(cost)] for (name, rung), cost in self._of.items()]

    def _touched(self, name: str, rung: str) -> list[RungCost]:
        self.news.add(name)
        if name not in self._names:
            self._names.append(name)
            if len(self._names) > MOST_NAMES:
                old = self._names.pop(0)
                for key in [key for key in self._of if key[0] == old]:
                    del self._of[key]
        keys = ((name, rung), (name, _ALL), (_ALL, rung), (_ALL, _ALL))
        return [self._of.setdefault(key, RungCost()) for key in keys]


def _mean_s(cost: RungCost) -> float | None:
    if not cost.taken and not cost.resumed:
        return None
    return (cost.free_s + cost.lost_s) / max(cost.taken, 1) + cost.resume_s / max(cost.resumed, 1)


def before_rungs(pairs: list[list[float]]) -> list[list[Any]]:
    """The rows of a snapshot that knew only the means of stopping and of restoring, each as count and sum."""
    (stops, stop_s), (restores, restore_s) = pairs
    return [[_ALL, _ALL, stops, stop_s, 0.0, restores, restore_s]] if stops or restores else []
