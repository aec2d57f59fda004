"""How far a what-if has come. Known to others by `cotenant.service.facade`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WHATIF_BUDGET_S = 30.0


@dataclass(slots=True)
class WhatIfWatch:
    """How far a what-if has come, for whoever waits for it. Each policy is played forward for at most `budget_s`."""

    budget_s: float = WHATIF_BUDGET_S
    policy: str = ""  # the one that is played now
    done: int = 0  # jobs that it has finished
    jobs: int = 0
    partial: list[str] = field(default_factory=list)  # policies for which time was up
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # by policy, what it told jobs with deadlines

    def hear(self, done: int) -> None:
        """So many jobs have come to their end in the play."""
        self.done = done

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"policy": self.policy, "done": self.done, "jobs": self.jobs}
