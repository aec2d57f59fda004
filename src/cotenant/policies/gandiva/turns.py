"""Taking turns on one server: equal or weighted quanta, switches at step boundaries, overruns charged.

In long simulations the share of time is enough (`fair_share`); this class plays the turns one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


def height(slots: int, gpus: int) -> int:
    """How many layers of jobs a server carries; above 1 it is over-subscribed."""
    return math.ceil(slots / gpus) if gpus else 0


def fair_share(slots: int, gpus: int, switch_s: float, quantum_s: float) -> float:
    """Part of the time in which each job of a server runs, less what switching costs."""
    if slots <= gpus:
        return 1.0
    return gpus / slots * (1 - switch_s / quantum_s)


@dataclass(slots=True)
class Member:
    """A job that takes turns. `owed_s` is what it overran its last quantum by."""

    name: str
    gpus: int
    weight: float = 1.0
    owed_s: float = 0.0
    ran_s: float = 0.0


@dataclass(slots=True)
class Rota:
    """Round robin over the jobs of one server (or of several, for gangs: one rota decides for all of them)."""

    gpus: int
    quantum_s: float = 60.0
    members: list[Member] = field(default_factory=list)

    def next_turn(self) -> list[Member]:
        """Who runs next: jobs from the head of the line that fit together; they go to its end."""
        left = self.gpus
        chosen = []
        for member in list(self.members):
            if member.gpus <= left:
                chosen.append(member)
                left -= member.gpus
        self.members = [m for m in self.members if m not in chosen] + chosen
        return chosen

    def length_s(self, member: Member) -> float:
        """How long a job may run now."""
        return max(self.quantum_s * member.weight - member.owed_s, 0.0)

    def ran(self, member: Member, seconds: float) -> None:
        """A job was suspended at the end of a step, `seconds` after its turn began."""
        member.ran_s += seconds
        member.owed_s = max(seconds - self.length_s(member), 0.0)
