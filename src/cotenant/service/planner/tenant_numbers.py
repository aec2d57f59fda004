"""How tenants stand in the tables of the engine after a decision, by name."""

from __future__ import annotations

from math import inf

from cotenant.core import columns as col
from cotenant.engine.live_rows import LiveRows
from cotenant.service.accounts.numbers import TenantNumbers


def half_life(tables: LiveRows) -> float:
    """After how many seconds use counts half; infinity where only what is held now counts."""
    tree = tables.cluster.tenants
    return inf if tree is None else tree.half_life_s


def numbers(tables: LiveRows, now_s: float) -> dict[str, TenantNumbers]:
    """All tenants that have had jobs since these tables began; none where there is no tree."""
    if tables.cluster.tenants is None:
        return {}
    state, half_life_s = tables.state, half_life(tables)
    found = {}
    for number, name in enumerate(tables.tenants):
        if not name:  # nobody's
            continue
        limit, used = state.quota[number, [col.Q_LIMIT, col.Q_USED]].tolist()
        past_gpus = 0.0
        if half_life_s < inf:
            mean, since_s = state.use[number, [col.U_PAST, col.U_SINCE]].tolist()
            kept = 0.5 ** (max(now_s - since_s, 0.0) / half_life_s)
            past_gpus = mean * kept + used * (1.0 - kept)
        found[name] = TenantNumbers(limit, used, past_gpus)
    return found
