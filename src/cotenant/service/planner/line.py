"""Who waits, in the order in which an order of columns looks at them."""

from __future__ import annotations

from cotenant.core import columns as col
from cotenant.service.planner.session import Session


def waiting_line(session: Session | None, now_s: float) -> list[str]:
    """Names, the first in line first; nobody before the first decision, and under a plan, which has no order."""
    if session is None or session.busy or session.engine.traits.plans:
        return []
    order = session.engine.order(now_s)
    rows = order[session.engine.state.i[order, col.STATE] == col.WAITING].tolist()
    return [name for name in map(session.name_of, rows) if name is not None]
