"""What stopping a running job costs, in seconds: an order's preemption has to gain more than that.

Believed remaining times decide whether to swap a waiting job for a running one. With V running and J waiting, both
finish sooner together if J goes first exactly when

    remaining(V)  >  start(J) + remaining(J)  +  2 saving(V) + start again(V) + work that V loses

for both wait until V has left (hence twice), and V has to be begun anew. So a running job stands in the order as if it
needed that much less, and everything else is the textbook's walk. Where nothing costs anything, it is the textbook's.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix


@kernel
def start_s(f: Matrix, i: IntMatrix, job: int) -> float:
    """What the next start of a waiting job takes before it gets on."""
    if i[job, HOME] >= 0:
        return float(f[job, RESUME])
    return float(f[job, START_UP] + (f[job, RESTORE] if i[job, OWES] == 1 else 0.0))


@kernel
def loses_work(i: IntMatrix, job: int, moved: bool) -> bool:
    """Whether a stop throws away what it has not saved: it neither saves when it is asked to nor stands still."""
    return bool(i[job, YIELDS] & 2 == 0 and (moved or i[job, RUNG] == 0))


@kernel
def stop_cost(f: Matrix, i: IntMatrix, job: int, moved: bool) -> float:
    """What stopping a job costs now, but for the work that it has done since RATED; `moved`: it begins elsewhere."""
    leaving = 2.0 * f[job, SAVING]
    if i[job, RUNG] == 1 and not moved:
        return float(leaving + f[job, RESUME])
    lost = max(f[job, DONE] - f[job, SAVED], 0.0) if loses_work(i, job, moved) else 0.0
    return float(leaving + f[job, START_UP] + f[job, RESTORE] + lost)


@kernel
def shielded_until(since: float, began: float, cost: float, min_run: float) -> float:
    """Until when no order stops a job: until it has worked for as long as stopping it costs, at most `min_run` from its
    start on. A job that was promised its GPUs keeps the promise: others were stopped for it."""
    if began == math.inf:
        return math.inf
    return float(min(began + cost, since + min_run))


@kernel
def less_cost(key: float, cost_gpu_s: float) -> float:
    """A Gittins index, negative as in the order, of a job whose stop costs so much.

    One over the index is the service that one completion is expected to take, just as remaining service is.
    """
    if cost_gpu_s == 0.0 or key == 0.0:
        return key
    left = -1.0 / key - cost_gpu_s
    return float(-1.0 / left if left > 0 else -math.inf)
