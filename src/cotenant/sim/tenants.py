"""How a run went for each tenant, where the cluster is shared by a tree of tenants."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.outcome import Outcome, Scalar
from cotenant.core.state import State
from cotenant.engine.ledger import count_use


def by_tenant(state: State, result: Outcome) -> tuple[dict[str, Scalar], ...]:
    """One row per tenant that has jobs, by name; none without a tree of tenants. Times are means of finished jobs."""
    if not state.x[col.TENANTS]:
        return ()
    rows: list[dict[str, Scalar]] = []
    work, done = result.workload, result.finished
    for q, name in sorted(enumerate(work.tenant.names), key=lambda item: item[1]):
        count_use(state, q, float(state.t[col.NOW]))
        mine = work.tenant.code == q
        ended = mine & done
        rows.append(
            {
                "tenant": name,
                "guaranteed": int(state.quota[q, col.Q_GUARANTEED]),
                "jobs": int((mine & result.measured).sum()),
                "finished": int(ended.sum()),
                "gpu_hours": float(state.use[q, col.U_USED]) / 3600,
                "borrowed_gpu_hours": float(state.use[q, col.U_BORROWED]) / 3600,
                "reclaims": int(state.quota[q, col.Q_RECLAIMS]),
                "avg_queue_s": float(np.mean(result.queue_s[ended])) if ended.any() else None,
                "avg_jct_s": float(np.mean(result.jct_s[ended])) if ended.any() else None,
            }
        )
    return tuple(rows)
