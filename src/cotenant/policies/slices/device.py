"""One GPU that may be cut: who has which slice, and what it gains to let a further job in or to absorb columns."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core.partitions import Partitions, place, saved_s, share
from cotenant.core.workload import Floats

Cut = tuple[int, int]
"""A shape, by its number, and the column at which the slice begins."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """A job as a device sees it: work left on a whole one, how busy it keeps that, and speeds by shape.

    `least` is the smallest shape that holds it, `most` the one beyond which it gains little; `cost_s` is what a change
    of its slice takes.
    """

    row: int
    left_s: float
    load: float
    speed: Floats
    least: int
    most: int
    cost_s: float


def divided(table: Partitions, sharers: list[Sharer], now: list[Cut]) -> list[Cut] | None:
    """Slices by load for jobs that are to share a device; None where they do not fit on it together.

    `now` are the slices of those who are there already, who come first: whoever keeps its shape stays, if it can.
    """
    if len(sharers) > table.most:
        return None
    sizes = tuple(one.least for one in sharers), tuple(one.most for one in sharers)
    found = share(table, tuple(one.load for one in sharers), *sizes)
    if found is None:
        return None
    keeps = [at < len(now) and now[at][0] == cut[0] for at, cut in enumerate(found)]
    taken = sum(table.shapes[number].mask(start) for (number, start), stays in zip(now, keeps, strict=False) if stays)
    others = tuple(cut[0] for cut, stays in zip(found, keeps, strict=True) if not stays)
    starts = place(table, others, taken)
    if starts is None:
        return list(found)
    firsts = iter(starts)
    return [
        now[at] if stays else (cut[0], next(firsts)) for at, (cut, stays) in enumerate(zip(found, keeps, strict=True))
    ]


def beside(table: Partitions, cuts: list[Cut], shape: int) -> int:
    """Where a slice of this shape can begin beside those that are there; -1: nowhere."""
    taken = 0
    for number, start in cuts:
        taken |= table.shapes[number].mask(start)
    found = place(table, (shape,), taken)
    return -1 if found is None else found[0]


def gain_s(there: list[Sharer], now: list[Cut], comer: Sharer, then: list[Cut], wait_s: float) -> float:
    """Seconds by which all jobs together end sooner if one comes now than if it has a GPU of its own after `wait_s`.

    Those who are there run in their new slices until the newcomer ends, and in the old ones again after that; each
    change of a slice costs them. The newcomer keeps its slice.
    """
    end_s = comer.left_s / float(comer.speed[then[-1][0]])
    gained = wait_s + comer.left_s - end_s
    for one, old, new in zip(there, now, then, strict=False):
        if old == new:
            continue
        slow, fast = float(one.speed[new[0]]), float(one.speed[old[0]])
        alone_s = one.left_s / fast
        ends_s = one.cost_s + one.left_s / slow
        if ends_s > end_s:
            done = max(end_s - one.cost_s, 0.0) * slow
            ends_s = max(end_s, one.cost_s) + min(one.cost_s + (one.left_s - done) / fast, (one.left_s - done) / slow)
        gained -= ends_s - alone_s
    return gained


def absorbed(table: Partitions, there: list[Sharer], now: list[Cut]) -> list[Cut] | None:
    """The slices with which those who are left on a device end sooner, changes included; None: as they are."""
    then = divided(table, there, now)
    if then is None or then == now:
        return None
    saved = sum(
        saved_s(one.left_s, float(one.speed[old[0]]), float(one.speed[new[0]]), one.cost_s)
        for one, old, new in zip(there, now, then, strict=True)
        if old != new
    )
    return then if saved > 0 else None
