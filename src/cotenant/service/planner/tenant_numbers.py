"""How tenants stand in the tables of the engine after a decision: copied then, said by name when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core import columns as col
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.tenants import Tree
from cotenant.engine.live_rows import LiveRows
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.tenancy.past import decayed


@dataclass(frozen=True, slots=True)
class TenantTables:
    """Copies of what the engine knows of tenants, at a moment."""

    at_s: float
    tree: Tree
    names: tuple[str, ...]
    quota: IntMatrix
    use: Matrix

    def numbers(self) -> dict[str, TenantNumbers]:
        """By name, of all tenants that have had jobs since these tables began."""
        found = {}
        columns = self.quota[:, [col.Q_LIMIT, col.Q_USED]].tolist(), self.use[:, [col.U_PAST, col.U_SINCE]].tolist()
        for name, (limit, used), (past_gpus, since_s) in zip(self.names, *columns, strict=True):
            if name:
                past_gpus = decayed(past_gpus, float(used), max(self.at_s - since_s, 0.0), self.tree.half_life_s)
                found[name] = TenantNumbers(limit, used, past_gpus)
        return found


def copied(tables: LiveRows, now_s: float) -> TenantTables | None:
    """None where there is no tree of tenants."""
    tree, names, state = tables.cluster.tenants, tables.tenants, tables.state
    if tree is None:
        return None
    return TenantTables(now_s, tree, names, state.quota[: len(names)].copy(), state.use[: len(names)].copy())
