"""Who held which GPU when: bars of every attempt, cut into start-up, work and suspension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cotenant.backends.base import NodeInfo
from cotenant.service.accounts.account import start_up_s, stretches
from cotenant.service.store.job import Attempt, LiveJob, cells

RUN, START, SUSPENDED = range(3)
MOST_BARS = 200_000


class Bar(NamedTuple):
    """From when to when an attempt had its GPUs, or (`SUSPENDED`) stood still beside them."""

    from_s: float
    to_s: float
    kind: int


def bars_of(attempt: Attempt, now_s: float) -> Iterator[Bar]:
    """The bars of an attempt up to now, oldest first."""
    had = stretches(attempt, now_s)
    ready_s = attempt.launched_s + start_up_s(attempt, now_s)
    for number, (from_s, to_s) in enumerate(had):
        if number:
            yield Bar(had[number - 1][1], from_s, SUSPENDED)
        if from_s < ready_s and number == 0:
            yield Bar(from_s, min(ready_s, to_s), START)
        if to_s > ready_s or number:
            yield Bar(max(from_s, ready_s) if number == 0 else from_s, to_s, RUN)
    if had and attempt.ended_s is None and attempt.taken_s is None:
        yield Bar(had[-1][1], now_s, SUSPENDED)


def gantt(
    jobs: Iterable[LiveJob], nodes: Sequence[NodeInfo], now_s: float, from_s: float, to_s: float, most: int = MOST_BARS
) -> dict[str, Any]:
    """Plain data, in columns: bars name their GPU and job by place. Of too many bars the newest are told."""
    rows = {(node.name, index): at for at, (node, index) in enumerate(_gpus(nodes))}
    told: list[dict[str, Any]] = []
    bars: list[tuple[int, int, float, float, int]] = []
    for job in jobs:
        before = len(bars)
        for attempt in job.attempts:
            inside = [bar for bar in bars_of(attempt, now_s) if bar.to_s > from_s and bar.from_s < to_s]
            for cell in cells(attempt.gpus) if inside else ():
                row = rows.setdefault(cell, len(rows))
                bars += [(row, len(told), round(a, 3), round(b, 3), kind) for a, b, kind in inside]
        if len(bars) > before:
            told.append(_told(job))
    left_out = max(len(bars) - most, 0)
    if left_out:
        bars = sorted(bars, key=lambda bar: bar[3])[left_out:]
    gpus = [list(key) for key, _ in sorted(rows.items(), key=lambda item: item[1])]
    return {
        "at_s": now_s,
        "from_s": from_s,
        "to_s": to_s,
        "gpus": gpus,
        "jobs": told,
        "bars": bars,
        "left_out": left_out,
    }


def _gpus(nodes: Sequence[NodeInfo]) -> Iterator[tuple[NodeInfo, int]]:
    return ((node, index) for node in nodes for index in range(node.gpus))


def _told(job: LiveJob) -> dict[str, Any]:
    return {
        "id": job.id, "name": job.spec.name, "tenant": job.tenant, "user": job.user, "model": job.spec.model,
        "state": str(job.state),
    }  # fmt: skip
