"""What the engine says in rows, in the service's words: acts with their GPUs and reasons, groups, who waits."""

from __future__ import annotations

from cotenant.core import columns as col
from cotenant.core.decision import Change, Decision, Transition
from cotenant.service.planner.decision import Act
from cotenant.service.planner.session import Session

_ACTS = {
    Change.START: "start", Change.STOP: "stop", Change.SUSPEND: "suspend", Change.RESUME: "resume",
    Change.END: "end", Change.TERMS: "terms", Change.RESIZE: "stop",
}  # fmt: skip


def acts_of(session: Session, decision: Decision) -> list[Act]:
    """What the executor has to do, in order."""
    acts = []
    for transition in decision.transitions:
        kind, job = _ACTS.get(transition.change, ""), session.name_of(transition.row)
        if kind and job is not None:
            gpus = session.gpus(transition.places) if kind == "start" else ()
            need = session.need_gib(transition.row) if kind in ("start", "terms") else 0.0
            weighed = {"gain_s": transition.gain_s, "cost_s": transition.cost_s}
            acts.append(Act(kind, job, gpus, _why(transition), transition.terms, need, **weighed))
    return acts


def lines_of(session: Session) -> tuple[tuple[str, ...], ...]:
    """Groups that take turns, as the last plan has them."""
    names = ([session.name_of(row) for row in line] for line in session.engine.lines)
    return tuple(tuple(name for name in line if name is not None) for line in names)


def waiting_line(session: Session | None, now_s: float) -> list[str]:
    """Names, the first in line first; nobody before the first decision, and under a plan, which has no order."""
    if session is None or session.busy or session.engine.traits.plans:
        return []
    order = session.engine.order(now_s)
    rows = order[session.engine.state.i[order, col.STATE] == col.WAITING].tolist()
    return [name for name in map(session.name_of, rows) if name is not None]


def _why(transition: Transition) -> str:
    if transition.change == Change.RESIZE or transition.moved == 2:
        return "resize"
    if transition.change == Change.END or transition.moved == 1:  # it goes on elsewhere: standing still is no help
        return "move"
    if transition.moved == 3:
        return "turn"
    return "preempt" if transition.change in (Change.STOP, Change.SUSPEND) else ""
