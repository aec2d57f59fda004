"""How fast gangs go on a network that they share, as a rate model of the engine: around the one of their GPUs, if any.

Rates follow whoever starts and ends: after every event somebody is asked again while a gang sends. What being spread
over more nodes costs is the network's to say, in place of a profile's figure.
"""

from __future__ import annotations

import numpy as np

from cotenant.beliefs.company import PairSpeeds, SharedSpeeds
from cotenant.core import columns as col
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import rerate
from cotenant.engine.senders import Senders, whole_speed


class NetworkSpeeds:
    """Speeds by who sends over which links; counts the GPU-seconds that gangs lose to others and to crossing racks."""

    def __init__(self, senders: Senders, company: PairSpeeds | SharedSpeeds | None = None) -> None:
        self.senders, self.company = senders, company
        self.lost_gpu_s = 0.0
        self._losing, self._since_s = 0.0, 0.0  # GPUs' worth of work, since when

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate whoever's links or company have changed, and ask to be called after the next event."""
        self.lost_gpu_s += self._losing * (now_s - self._since_s)
        rows = running_rows(state)
        rerate(state, rule, rows, self.speeds(state, rows), now_s)
        self._since_s = now_s
        if self.senders.now(state) and state.x[col.N_EVENTS]:
            state.t[col.NEXT_WARM] = min(state.t[col.NEXT_WARM], state.f[state.events[0], col.EVENT])

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job in its present company and on its present links."""
        speeds = state.f[rows, col.ALONE].copy() if self.company is None else self.company.speeds(state, rows)
        gangs = self.senders.now(state)
        parts = dict(zip(gangs, self.senders.topology.speeds(list(gangs.values())), strict=True))
        self._losing = sum((1.0 - part) * float(state.i[row, col.GPUS]) for row, part in parts.items())
        for at in np.flatnonzero(np.isin(rows, list(gangs))).tolist():
            row = int(rows[at])
            pool = int(state.node[state.slices[state.i[row, col.SLICE], col.SLICE_NODE], col.NODE_POOL])
            speeds[at] *= whole_speed(state, row, pool) / float(state.f[row, col.ALONE]) * parts[row]
        return speeds
