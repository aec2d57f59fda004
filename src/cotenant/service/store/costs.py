"""What each rung of the preemption ladder really cost, over all jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

_ALL = ""  # stands for all rungs; in rows it also stands where older versions had the name of a kind of jobs


@dataclass(slots=True)
class RungCost:
    """Sums over `taken` preemptions, in seconds: order until the GPUs were free, work lost; and over `resumed`."""

    taken: int = 0
    free_s: float = 0.0
    lost_s: float = 0.0
    resumed: int = 0
    resume_s: float = 0.0


class Costs:
    """Measured costs per rung; the empty rung stands for all."""

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        self._of = {rung: RungCost(*sums) for name, rung, *sums in rows if name == _ALL}

    def add_taken(self, rung: str, free_s: float, lost_s: float) -> None:
        """A rung was taken: the GPUs were free after so long, and so much work was lost."""
        for cost in self._touched(rung):
            cost.taken, cost.free_s, cost.lost_s = cost.taken + 1, cost.free_s + free_s, cost.lost_s + lost_s

    def add_lost(self, rung: str, lost_s: float) -> None:
        """Work of a preemption that was counted before turned out to be lost."""
        for cost in self._touched(rung):
            cost.lost_s += lost_s

    def add_resumed(self, rung: str, resume_s: float) -> None:
        """To go on took so long."""
        for cost in self._touched(rung):
            cost.resumed, cost.resume_s = cost.resumed + 1, cost.resume_s + resume_s

    def of(self, rung: str = _ALL) -> RungCost:
        """The sums of a rung."""
        return self._of.get(rung, RungCost())

    def mean_s(self, unknown_s: float) -> float:
        """Seconds that a preemption costs in all, over all jobs and rungs; `unknown_s` before any was measured."""
        cost = self.of()
        if not cost.taken and not cost.resumed:
            return unknown_s
        return (cost.free_s + cost.lost_s) / max(cost.taken, 1) + cost.resume_s / max(cost.resumed, 1)

    def rows(self) -> list[list[Any]]:
        """Everything as plain data."""
        return [[_ALL, rung, *astuple(cost)] for rung, cost in self._of.items()]

    def _touched(self, rung: str) -> list[RungCost]:
        return [self._of.setdefault(key, RungCost()) for key in (rung, _ALL)]


def before_rungs(pairs: list[list[float]]) -> list[list[Any]]:
    """The rows of a snapshot that knew only the means of stopping and of restoring, each as count and sum."""
    (stops, stop_s), (restores, restore_s) = pairs
    return [[_ALL, _ALL, stops, stop_s, 0.0, restores, restore_s]] if stops or restores else []
