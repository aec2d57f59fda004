"""Who runs on GPUs that no lease holds, in which order.

Refused jobs that can still end inside the present lease come first and then count as holders of it; then best effort
and refused jobs by remaining service, shortest first; then jobs with a promise that wait for their slot, by slack times
GPUs (running early saves them leases later); last the jobs that would be late even if they ran from now on. Jobs
with a promise may also come before best effort: fewer deadlines are missed, and best effort waits longer.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.policies.chronus.promises import PromiseTable

_PROMOTED, _BEFORE, _OTHERS, _AFTER, _LATE = range(5)


def order_of_spare(
    view: View, which: Ints, table: PromiseTable, lease_end_s: float, promised_first: bool
) -> tuple[Ints, Ints]:
    """Jobs `which` (places in the view) in order, and those of them that are promoted to the present lease."""
    if not len(which):
        return which, which
    now_s = view.now_s
    steps = view.steps.take(which)
    last_s = steps.last_s
    remaining_s = view.remaining_s[which]
    warm = view.running[which] | (view.believed_s[which] <= remaining_s)  # nothing to restore
    need_s = remaining_s + np.where(warm, 0.0, view.restore_s[which])
    promised = table.is_promised(view.rows[which])
    has = ~np.isnan(last_s)
    late = has & (now_s + need_s > last_s + 1e-6)
    promoted = has & ~promised & ~late & (now_s + need_s <= lease_end_s + 1e-6)
    service = remaining_s * view.gpus[which]
    slack = np.where(has, last_s - now_s - remaining_s, 0.0) * view.gpus[which]
    early = _BEFORE if promised_first else _AFTER
    rank = np.select([promoted, late & ~promised, promised], [_PROMOTED, _LATE, early], _OTHERS)
    key = np.where(promised, slack, service)
    order = np.lexsort((view.rows[which], view.submit_s[which], key, rank, -view.priority[which]))
    return which[order], which[promoted]
