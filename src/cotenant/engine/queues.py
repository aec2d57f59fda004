"""The queues of policies that have them, where stopping a job costs something.

A queue says how long a job is believed to run yet: as long as it has run. A running job is demoted by so much later as
stopping it costs, for only then others, of whom less is believed, gain more than it loses. Waiting ones stand where the
policy puts them.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix, Rule
from cotenant.core.workload import Floats
from cotenant.engine.weighing import loses_work, stop_cost


@kernel
def stand_in_queue(f: Matrix, i: IntMatrix, thresholds: Floats, job: int, ran: float, cost: float) -> None:
    """Put a job into the queue of what it has attained, with the present run, less what stopping it costs."""
    if stop_cost(f, i, job, False) == 0.0:  # its queue is as its crossings have left it
        return
    queue = 0
    attained = (f[job, ATTAINED] + ran - cost) * i[job, GPUS] * (1 + 1e-9)  # who has just crossed does not cross again
    while queue < len(thresholds) and attained >= thresholds[queue]:
        queue += 1
    i[job, QUEUE] = queue


@kernel
def crossing_s(f: Matrix, i: IntMatrix, rule: Rule, job: int, full: bool) -> float:
    """When a running job crosses into its next queue. Work that is in no checkpoint is lost as fast as it is done."""
    crossing = f[job, SINCE] + rule.thresholds[i[job, QUEUE]] / i[job, GPUS] - f[job, ATTAINED]
    cost = stop_cost(f, i, job, full) if rule.flags[WEIGHS] == 1 else 0.0
    if cost == 0.0:
        return float(crossing)
    if loses_work(i, job, full) and crossing + cost > f[job, WARM]:
        return math.inf
    return float(max(crossing + cost, f[job, SINCE]))
