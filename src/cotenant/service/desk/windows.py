"""Maintenance and reservations, checked before they are taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError, unknown
from cotenant.service.facade import Conflict, NotFound
from cotenant.service.node_windows import MAINTENANCE, RESERVATION, NodeWindow


def checked(
    window: NodeWindow, nodes: Sequence[NodeInfo], others: Iterable[NodeWindow], gpus: int, now_s: float
) -> NodeWindow:
    """The window with its nodes, if it can be: those named, or as few as have so many `gpus`; none named: all."""
    if window.kind not in (MAINTENANCE, RESERVATION):
        raise unknown("kind", window.kind, (MAINTENANCE, RESERVATION))
    known = {node.name for node in nodes}
    for name in window.nodes:
        if name not in known:
            raise NotFound(f"there is no node '{name}'")
    if not window.from_s < window.to_s:
        raise InputError("it must last longer than 0 seconds")
    if window.to_s <= now_s:
        raise InputError("it would be over already: give a later time")
    if window.kind == MAINTENANCE:
        return replace(window, tenant="", user="")
    if not window.tenant and not window.user:
        raise InputError("a reservation is for somebody: give a tenant, a user or both")
    there = [w for w in others if w.from_s < window.to_s and window.from_s < w.to_s and w.kind == RESERVATION]
    taken = {name for name in known if any(w.covers(name) for w in there)}
    if gpus:
        return replace(window, nodes=_enough([node for node in nodes if node.name not in taken], gpus))
    both = sorted(taken & (set(window.nodes) or known))
    if both:
        raise Conflict(f"{', '.join(both)} is reserved for somebody else then")
    return window


def _enough(nodes: Sequence[NodeInfo], gpus: int) -> tuple[str, ...]:
    """As few nodes as have so many GPUs: the smallest that has them alone, else the largest first."""
    alone = [node for node in nodes if node.gpus >= gpus]
    if alone:
        return (min(alone, key=lambda node: node.gpus).name,)
    chosen: list[NodeInfo] = []
    for node in sorted(nodes, key=lambda node: -node.gpus):
        if sum(one.gpus for one in chosen) >= gpus:
            break
        chosen.append(node)
    has = sum(node.gpus for node in chosen)
    if has < gpus:
        raise InputError(f"{gpus} GPUs cannot be reserved then: at most {has} are free of other reservations")
    return tuple(node.name for node in chosen)
