"""Finish-time fairness as an order (Themis' measure, NSDI'20; the order of Synergy's simulator, OSDI'22).

rho is when a job would end if it ran from now on, over how long it would have taken alone: (time since submission +
what is left) / total. Themis serves the worst off first. Synergy's released simulator sorts the other way round, best
off first, which `first=best` reproduces (and `--compat synergy` always does): whoever has waited waits on.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import unknown
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Floats
from cotenant.policies.base import PriorityPolicy

FIRST = ("worst", "best")
_LEAST_S = 1e-3  # believed durations below this are alike


class Ftf(PriorityPolicy):
    """Whoever is delayed most against running alone comes first, with preemption at rounds."""

    name = "ftf"
    source = "Themis' measure, NSDI'20; an order of Synergy, OSDI'22"
    defaults: ClassVar[dict[str, Value]] = {"first": "worst", "round": 300.0}

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        if self.params["first"] not in FIRST:
            raise unknown("first of policy 'ftf'", str(self.params["first"]), FIRST)
        self.round_s = self.number("round") or np.inf

    def priority(self, view: View) -> Floats:
        """Rho, or its negative for the worst off first."""
        rho = ratios(view.now_s - view.submit_s, view.remaining_s, view.believed_s)
        return rho if self.params["first"] == "best" else -rho

    def why(self, view: View) -> str:
        """Its ratio, and who comes first."""
        rho = float(ratios(view.now_s - view.submit_s, view.remaining_s, view.believed_s)[0])
        return f"it would end {rho:.2f} times as late as alone; the {self.params['first']} off come first"


def ratios(age_s: Floats, left_s: Floats, total_s: Floats) -> Floats:
    """Rho of each job if nothing held it up from now on."""
    return np.asarray((age_s + left_s) / np.maximum(total_s, _LEAST_S))
