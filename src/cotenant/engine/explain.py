"""Why a job does not run now. A plan has said so itself; under an order the walk is repeated up to the job's turn."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Protocol

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.reasons import Cause, Reason, TenantFacts
from cotenant.core.state import State
from cotenant.core.workload import Ints
from cotenant.engine.cycle import Engine
from cotenant.engine.network import NetworkCare
from cotenant.engine.walk import walk_order

_NAMED_AHEAD = 5


class JobNames(Protocol):
    """Names of jobs by row."""

    def __getitem__(self, row: int, /) -> object: ...


class Who(Protocol):
    """Who is who: a workload, or the live jobs."""

    @property
    def job_id(self) -> JobNames:
        """Names of jobs."""

    def tenant_of(self, row: int) -> str:
        """Name of a job's tenant."""

    def asks(self, row: int) -> str:
        """What a job asks for, in words."""


def explain(engine: Engine, work: Who, cluster: Cluster, row: int, now_s: float, order: Ints | None = None) -> Reason:
    """The reason for one job at one moment. Changes nothing. `order` spares sorting again for many questions."""
    reason = _reason(engine, work, cluster, row, now_s, order)
    if engine.state.i[row, col.STATE] != col.WAITING:
        return reason
    return replace(reason, tenant=tenant_facts(engine, work, row))


def _reason(engine: Engine, work: Who, cluster: Cluster, row: int, now_s: float, order: Ints | None) -> Reason:
    state = engine.state
    name = str(work.job_id[row])
    need = int(state.i[row, col.GPUS])
    status = int(state.i[row, col.STATE])
    if status == col.FINISHED:
        return Reason(name, now_s, Cause.FINISHED, f"it finished at {state.f[row, col.FINISH]:g} s", need)
    if status == col.FUTURE:
        return Reason(name, now_s, Cause.NOT_SUBMITTED, f"it is submitted at {state.f[row, col.SUBMIT]:g} s", need)
    if state.i[row, col.PROMISED]:
        text = "it is chosen and has its GPUs as soon as others have given them back"
        if state.x[col.ROTATES] and state.i[row, col.TURN]:
            text = "it takes turns with others on its GPUs, and theirs is not over"
        return Reason(name, now_s, Cause.CAPACITY, text, need)
    if status == col.RUNNING:
        text = f"it has been running since {state.f[row, col.SINCE]:g} s"
        if engine.traits.resizes and (said := engine.answers()(row)):
            text = f"{text}; {named(said, work.job_id)}"
        text += named(_on_network(engine, row), work.job_id)
        return Reason(name, now_s, Cause.RUNNING, text, need)
    if status == col.PINNED:
        return Reason(name, now_s, Cause.RUNNING, "it runs and may not be stopped", need)
    if engine.network is not None and row in engine.network.waiting:
        return Reason(name, now_s, Cause.NETWORK, named(_for_network(engine.network, row), work.job_id), need)
    if status == col.HELD:
        return Reason(name, now_s, Cause.HELD, "it is held until somebody releases it", need)
    if state.cls[state.i[row, col.CLASS], col.C_POOLS] == 0:
        text = f"it asks for {work.asks(row)}, more than any pool of {cluster.spec} holds"
        return Reason(name, now_s, Cause.EXCEEDS_CLUSTER, text, need)
    if status == col.ASIDE:
        text = f"it asks for {work.asks(row)}, more than the nodes that are up could hold: it keeps nobody waiting"
        return Reason(name, now_s, Cause.ASIDE, text, need)
    if engine.traits.plans:
        idle = int(state.x[col.IDLE])
        said = named(engine.answers()(row), work.job_id)
        text = said or f"the plan of '{engine.name}' does not run it now; it needs {need} GPUs and {idle} are idle"
        return Reason(name, now_s, Cause.BEHIND_HEAD, text, need, idle)
    return _waiting_reason(engine, work, row, now_s, engine.order(now_s) if order is None else order)


def _on_network(engine: Engine, row: int) -> str:
    """What the network makes of a running job; nothing where it has its links for itself."""
    found = None if engine.network is None else engine.network.slowed_by(engine.state, row)
    if engine.network is None or found is None or found[0] > 1 - 1e-9:
        return ""
    speed, link, others = found
    where = engine.network.senders.topology.name(link)
    shared = f"shares {where} with {_rows(others)}" if others else f"sends over {where}"
    return f"; it {shared} and goes at {speed:.2f} of its speed alone"


def _for_network(care: NetworkCare, row: int) -> str:
    """Why a job waits for the network."""
    waits = care.waiting[row]
    return (
        f"it would share {care.senders.topology.name(waits.link)} with {_rows(sorted(waits.after))}: if it starts after"
        f" that, all whom it concerns end {waits.saves_s:.0f} s sooner in sum, as believed"
    )


def _rows(rows: list[int]) -> str:
    more = f" and {len(rows) - _NAMED_AHEAD} others" if len(rows) > _NAMED_AHEAD else ""
    return ", ".join(f"row {row}" for row in rows[:_NAMED_AHEAD]) + more


def tenant_facts(engine: Engine, work: Who, row: int) -> TenantFacts | None:
    """How the tenant of a job stands; None where there is no tree of tenants."""
    state = engine.state
    if not state.x[col.TENANTS]:
        return None
    limit, used, guaranteed = state.quota[state.i[row, col.TENANT], : col.Q_CLAIMED].tolist()
    need, reserved = int(state.i[row, col.GPUS]), int(state.x[col.RESERVED])
    return TenantFacts(
        work.tenant_of(row), limit, used, guaranteed, need,
        reclaiming=bool(state.x[col.RECLAIMING]) and used + need <= guaranteed,
        reserved_for=str(work.job_id[reserved]) if reserved >= 0 else "",
        next_s=float(state.t[col.NEXT_CLAIM]),
    )  # fmt: skip


def _waiting_reason(engine: Engine, work: Who, row: int, now_s: float, order: Ints) -> Reason:
    name, need = str(work.job_id[row]), int(engine.state.i[row, col.GPUS])
    flags, traits = engine.rule.flags, engine.traits
    preemptive = traits.preemptive if traits.computed else bool(flags[col.PREEMPTIVE])
    strict = traits.strict if traits.computed else bool(flags[col.STRICT])
    planned = _plan_apart(engine.state, row)
    walk_order(planned, order, preemptive, strict)
    code, free = int(planned.x[col.WATCH_CODE]), int(planned.x[col.WATCH_FREE])
    waiting = order[engine.state.i[order, col.STATE] == col.WAITING]
    position = int(np.flatnonzero(waiting == row)[0]) + 1
    ahead = tuple(str(work.job_id[job]) for job in waiting[: position - 1][:_NAMED_AHEAD].tolist())
    stands = engine.policy.why(engine.view_of(np.array([row], np.int64), now_s))
    line = f"it is number {position} of {len(waiting)} waiting" + (f": {stands}" if stands else "")
    if code == col.W_QUOTA:
        tenant = work.tenant_of(row)
        limit = int(planned.quota[planned.i[row, col.TENANT], col.Q_LIMIT])
        cause, text = Cause.OVER_QUOTA, f"its tenant '{tenant}' may hold {limit} GPUs and has no {need} left; {line}"
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


def named(text: str, job_id: JobNames) -> str:
    """The words of a plan with the names of jobs for their rows."""
    return re.sub(r"\brow (\d+)", lambda found: f"'{job_id[int(found[1])]}'", text)


def _plan_apart(state: State, row: int) -> State:
    """The same tables with a private copy of everything that planning writes to."""
    apart = state._replace(x=state.x.copy(), i=state.i.copy(), slices=state.slices.copy(), quota=state.quota.copy())
    apart.x[col.WATCH] = row
    apart.x[col.WATCH_CODE] = col.W_NOT_REACHED
    return apart
