"""The obvious loops that ours is measured against (`bench.naive`): shortest remaining time, or service, first.

Both bring all active jobs up to date at each event, put them in order and give GPUs out from the first on. They count
GPUs, and preemptions are free. `plain` keeps nothing from one event to the next but the jobs themselves, and sorts them
anew. `kept` keeps its line: a job that runs hardly moves in it, so that inserting whoever is out of place costs little.
Both are made by the compiler of the engine's kernels (`cotenant.core.native`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cotenant.core.workload import Floats, Ints


class Jobs(NamedTuple):
    """Columns by job, in order of arrival, and room for lists of them."""

    submit: Floats
    gpus: Ints
    left: Floats  # seconds of work, at the last event
    finish: Floats
    running: Ints  # 1 where it runs
    key: Floats
    active: Ints
    order: Ints
    spare: Ints


def _next_event(jobs: Jobs, count: int, now: float, arrival: float) -> float:
    """When the first of the running jobs ends, or the next one arrives."""
    soonest = arrival
    for k in range(count):
        job = jobs.active[k]
        if jobs.running[job] == 1:
            soonest = min(soonest, now + jobs.left[job])
    return soonest


def _bring_up_to_date(jobs: Jobs, count: int, passed: float, now: float) -> int:
    """Let running jobs work, and take those who have ended out of the active ones; how many are left, in order."""
    kept = 0
    for k in range(count):
        job = jobs.active[k]
        if jobs.running[job] == 1:
            jobs.left[job] -= passed
        if jobs.running[job] == 1 and jobs.left[job] <= 1e-7:
            jobs.finish[job] = now
        else:
            jobs.active[kept] = job
            kept += 1
    return kept


def _write_keys(jobs: Jobs, count: int, by_gpus: bool) -> None:
    for k in range(count):
        job = jobs.active[k]
        jobs.key[job] = jobs.left[job] * jobs.gpus[job] if by_gpus else jobs.left[job]


def _give_out(jobs: Jobs, line: Ints, count: int, cluster_gpus: int) -> None:
    """From the first of a line on; whoever does not fit is passed over."""
    free = cluster_gpus
    for k in range(count):
        job = line[k]
        jobs.running[job] = 1 if jobs.gpus[job] <= free else 0
        free -= jobs.gpus[job] * jobs.running[job]


def _merge(key: Floats, source: Ints, target: Ints, low: int, middle: int, high: int) -> None:
    """Merge two sorted stretches, [low, middle) and [middle, high), of equals the first ones first."""
    left, right = low, middle
    for k in range(low, high):
        if left < middle and (right >= high or key[source[left]] <= key[source[right]]):
            target[k] = source[left]
            left += 1
        else:
            target[k] = source[right]
            right += 1


def _sort_anew(jobs: Jobs, count: int) -> bool:
    """Sort the active jobs from their order of arrival, bottom up; whether the result is in `spare`, not in `order`."""
    for k in range(count):
        jobs.order[k] = jobs.active[k]
    in_spare, width = False, 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            if in_spare:
                _merge(jobs.key, jobs.spare, jobs.order, low, middle, high)
            else:
                _merge(jobs.key, jobs.order, jobs.spare, low, middle, high)
        in_spare = not in_spare
        width *= 2
    return in_spare


def _insert(jobs: Jobs, count: int) -> None:
    """Sort the active jobs, which are nearly sorted; of equals whoever arrived first."""
    key, active = jobs.key, jobs.active
    for k in range(1, count):
        job = active[k]
        to = k
        while to > 0 and (key[job] < key[active[to - 1]] or (key[job] == key[active[to - 1]] and job < active[to - 1])):
            active[to] = active[to - 1]
            to -= 1
        active[to] = job


def plain(jobs: Jobs, cluster_gpus: int, by_gpus: bool) -> int:
    """Play to the end, sorting all active jobs anew at each event; how many events there were."""
    many, count, arrived, events = len(jobs.submit), 0, 0, 0
    now = 0.0
    while count > 0 or arrived < many:
        soonest = _next_event(jobs, count, now, jobs.submit[arrived] if arrived < many else math.inf)
        count = _bring_up_to_date(jobs, count, soonest - now, soonest)
        now = soonest
        while arrived < many and jobs.submit[arrived] <= now:
            jobs.active[count] = arrived
            count += 1
            arrived += 1
        _write_keys(jobs, count, by_gpus)
        if _sort_anew(jobs, count):
            _give_out(jobs, jobs.spare, count, cluster_gpus)
        else:
            _give_out(jobs, jobs.order, count, cluster_gpus)
        events += 1
    return events


def kept(jobs: Jobs, cluster_gpus: int, by_gpus: bool) -> int:
    """The same, with the active jobs in line from one event to the next."""
    many, count, arrived, events = len(jobs.submit), 0, 0, 0
    now = 0.0
    while count > 0 or arrived < many:
        soonest = _next_event(jobs, count, now, jobs.submit[arrived] if arrived < many else math.inf)
        count = _bring_up_to_date(jobs, count, soonest - now, soonest)
        now = soonest
        while arrived < many and jobs.submit[arrived] <= now:
            jobs.active[count] = arrived
            count += 1
            arrived += 1
        _write_keys(jobs, count, by_gpus)
        _insert(jobs, count)
        _give_out(jobs, jobs.active, count, cluster_gpus)
        events += 1
    return events
