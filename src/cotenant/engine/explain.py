"""Why a job does not run now: the walk is repeated up to its turn and says what it met there."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.reasons import Cause, Reason
from cotenant.core.state import State
from cotenant.core.workload import Ints, Workload
from cotenant.engine.cycle import Engine
from cotenant.engine.walk import walk_order
from cotenant.policies.base import PriorityPolicy

_NAMED_AHEAD = 5


def explain(
    engine: Engine, work: Workload, cluster: Cluster, row: int, now_s: float, order: Ints | None = None
) -> Reason:
    """The reason for one job at one moment. Changes nothing. `order` spares sorting again for many questions."""
    state = engine.state
    name = str(work.job_id[row])
    need = int(state.i[row, col.GPUS])
    status = int(state.i[row, col.STATE])
    if status == col.FINISHED:
        return Reason(name, now_s, Cause.FINISHED, f"it finished at {state.f[row, col.FINISH]:g} s", need)
    if status == col.FUTURE:
        return Reason(name, now_s, Cause.NOT_SUBMITTED, f"it is submitted at {work.submit_s[row]:g} s", need)
    if status == col.RUNNING:
        since = state.f[row, col.SINCE]
        return Reason(name, now_s, Cause.RUNNING, f"it has been running since {since:g} s", need)
    if status == col.HELD:
        return Reason(name, now_s, Cause.HELD, "it is held until somebody releases it", need)
    if state.cls[state.i[row, col.CLASS], col.C_POOLS] == 0:
        return Reason(
            name,
            now_s,
            Cause.EXCEEDS_CLUSTER,
            f"it asks for {work.asks(row)}, more than any pool of {cluster.spec} holds",
            need,
        )
    if said := engine.policy.reason(row):
        return Reason(name, now_s, Cause.BEHIND_HEAD, said, need)
    return _waiting_reason(engine, work, row, now_s, engine.order(now_s) if order is None else order)


def _waiting_reason(engine: Engine, work: Workload, row: int, now_s: float, order: Ints) -> Reason:
    name, need = str(work.job_id[row]), int(engine.state.i[row, col.GPUS])
    preemptive, strict = _how_it_walks(engine)
    planned = _plan_apart(engine.state, row)
    walk_order(planned, order, preemptive, strict)
    code, free = int(planned.x[col.WATCH_CODE]), int(planned.x[col.WATCH_FREE])
    waiting = order[engine.state.i[order, col.STATE] == col.WAITING]
    position = int(np.flatnonzero(waiting == row)[0]) + 1
    ahead = tuple(str(work.job_id[job]) for job in waiting[: position - 1][:_NAMED_AHEAD].tolist())
    line = f"it is number {position} of {len(waiting)} waiting"
    if code == col.W_QUOTA:
        tenant = work.tenant.names[work.tenant.code[row]]
        limit = int(planned.quota[work.tenant.code[row], col.Q_LIMIT])
        cause, text = (
            Cause.OVER_QUOTA,
            f"its tenant '{tenant}' may hold {limit} GPUs and has no {need} left; {line}",
        )
    elif code == col.W_BLOCKED_BY_HEAD:
        cause = Cause.BEHIND_HEAD
        text = f"the policy holds it behind '{ahead[0] if ahead else '?'}', which does not fit; {line}"
    elif code == col.W_RUNS:
        cause = Cause.RESERVED
        text = f"it would fit, but would delay the reservation of '{ahead[0] if ahead else '?'}'; {line}"
    elif code == col.W_CAPACITY or free < need:
        cause, text = Cause.CAPACITY, f"it needs {need} GPUs and {free} are left when its turn comes; {line}"
    else:
        cause = Cause.FRAGMENTED
        text = f"it needs {need} GPUs together; {free} are left at its turn, but not on few enough nodes; {line}"
    return Reason(name, now_s, cause, text, need, free, position, len(waiting), ahead)


def _how_it_walks(engine: Engine) -> tuple[bool, bool]:
    policy, flags = engine.policy, engine.rule.flags
    if isinstance(policy, PriorityPolicy):
        return policy.preemptive, policy.strict
    return bool(flags[col.PREEMPTIVE]), bool(flags[col.STRICT])


def _plan_apart(state: State, row: int) -> State:
    """The same tables with a private copy of everything that planning writes to."""
    apart = state._replace(x=state.x.copy(), slices=state.slices.copy(), quota=state.quota.copy())
    apart.x[col.WATCH] = row
    apart.x[col.WATCH_CODE] = col.W_NOT_REACHED
    return apart
