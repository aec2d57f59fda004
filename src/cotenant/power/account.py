"""What sleeping nodes are worth: utilisation of the others, wake-ups per day, energy (Helios, SC'21, section 4.3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.power.ces import STEP_S, Ces, PowerStep
from cotenant.power.windows import Floats

IDLE_NODE_KW = 0.8  # an idle node of 8 GPUs
COOLING = 3.0  # server energy, and twice as much for cooling it


@dataclass(frozen=True, slots=True)
class Account:
    """Sums over a series of steps. Utilisations are means over steps of used nodes over nodes awake, 0 to 1."""

    steps: int
    wakes: int
    sleeps: int
    nodes_per_wake: float
    nodes_asleep: float
    utilization_before: float
    utilization: float

    @property
    def wakes_per_day(self) -> float:
        """Wake-ups per day."""
        return self.wakes / (self.steps * STEP_S / 86400)

    @property
    def saved_kwh_per_year(self) -> float:
        """Energy of the nodes asleep over a year at this rate."""
        return saved_kwh(self.nodes_asleep, 8760)


def saved_kwh(nodes_asleep: float, hours: float) -> float:
    """Energy that so many sleeping nodes do not take, cooling included."""
    return nodes_asleep * IDLE_NODE_KW * COOLING * hours


def run(ces: Ces, time_s: Floats, used: Floats) -> tuple[Account, list[PowerStep]]:
    """Play a series of busy nodes through the rules."""
    decisions = []
    for at, now in zip(time_s.tolist(), used.tolist(), strict=True):
        ces.step(at, now)
        decisions.append(ces.last)
    awake = np.array([decision.awake for decision in decisions])
    woken = np.array([decision.woken for decision in decisions])
    account = Account(
        steps=len(used),
        wakes=int((woken > 0).sum()),
        sleeps=sum(decision.slept > 0 for decision in decisions),
        nodes_per_wake=float(woken[woken > 0].mean()) if (woken > 0).any() else 0.0,
        nodes_asleep=float((ces.nodes - awake).mean()),
        utilization_before=float((used / ces.nodes).mean()),
        utilization=float(np.where(awake > 0, used / np.maximum(awake, 1), 1.0).mean()),
    )
    return account, decisions
