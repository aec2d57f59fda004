"""Nodes by the queue: as many awake as jobs run on and wait for, idle ones asleep after a while.

For nodes that cost something while nobody uses them and come back within minutes, such as those that are held by pilots
of Slurm. No forecast: whoever knows the past of a cluster takes `ces`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value, typed_params

DEFAULTS: dict[str, Value] = {
    "linger": 300.0,  # seconds for which an idle node stays awake
    "least": 0,  # nodes that are always awake
    "most": 0,  # nodes that are awake at most; 0: all
}


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The parameters."""

    linger_s: float = 300.0
    least: int = 0
    most: int = 0


def parse_queue(text: str) -> QueueRules:
    """`queue`, `queue:linger=60,least=1,most=16`."""
    values = typed_params(Spec.parse(text), DEFAULTS, "power")
    linger_s, least, most = float(str(values["linger"])), int(str(values["least"])), int(str(values["most"]))
    if linger_s < 0 or least < 0 or most < 0 or 0 < most < least:
        raise InputError(f"power '{text}': linger and least must be at least 0, most 0 (all) or at least least")
    return QueueRules(linger_s, least, most)


class QueueLength:
    """Who may sleep. It remembers since when nodes are idle."""

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self._idle_s: dict[str, float] = {}

    def asleep(
        self, up: set[str], rising: set[str], off: Sequence[str], busy: set[str], queued: int, now_s: float
    ) -> set[str]:  # fmt: skip
        """Who should sleep. `up` and `rising` are awake or about to be, `off` asleep, the most wanted first; `queued`:
        how many nodes jobs wait for."""
        self._idle_s = {name: self._idle_s.get(name, now_s) for name in sorted(up - busy)}
        awake = len(up | rising)
        target = max(len(busy) + queued, self.rules.least)
        target = min(target, self.rules.most or target, awake + len(off))
        if target > awake:
            return set(off[target - awake :])
        spare = [name for name, since_s in self._idle_s.items() if now_s - since_s >= self.rules.linger_s]
        return {*off, *sorted(spare, reverse=True)[: awake - target]}

    @property
    def due_s(self) -> float:
        """When the first idle node has lingered long enough."""
        return min(self._idle_s.values(), default=float("inf")) + self.rules.linger_s
