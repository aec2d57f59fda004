"""A slow simulator, independent of the product: counts GPUs and sorts all active jobs again at each event.

Jobs are (submit, gpus, duration) in whole seconds, and thresholds divide by every gang size, so that all
arithmetic is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

Row = tuple[int, int, int]


@dataclass
class Job:
    row: int
    submit: int
    gpus: int
    work: int
    draw: float = 0.0
    tier: int = 0
    done: float = 0
    attained: float = 0  # the clock that a promotion resets
    since: float = 0
    running: bool = False
    first: float = inf
    finish: float = inf
    queue: int = 0

    def ran(self, now: float) -> float:
        return now - self.since if self.running else 0

    def left(self, now: float) -> float:
        return self.work - self.done - self.ran(now)

    def flip(self, now: float) -> None:
        """Start or stop."""
        self.done += self.ran(now)
        self.attained += self.ran(now)
        self.since, self.running = now, not self.running
        self.first = min(self.first, now) if self.running else self.first


@dataclass
class Rules:
    policy: str
    strict: bool = False
    round_s: float = inf
    thresholds: tuple[float, ...] = ()
    knob: float = inf

    def key(self, now: float) -> Callable[[Job], tuple[float, ...]]:
        own = self.own_key(now)
        return lambda j: (j.tier, *own(j))

    def own_key(self, now: float) -> Callable[[Job], tuple[float, ...]]:
        boundary = now // self.round_s * self.round_s if self.round_s < inf else 0
        return {
            "fifo": lambda j: (j.row,),
            "backfill": lambda j: (j.row,),
            "sjf": lambda j: (j.work, j.row),
            "random": lambda j: (j.draw, j.row),
            "srtf": lambda j: (j.left(now), j.row),
            "srsf": lambda j: (j.left(now) * j.gpus, j.row),
            "las": lambda j: ((j.attained + (max(boundary - j.since, 0) if j.running else 0)) * j.gpus, j.row),
            "tiresias-l": lambda j: (j.queue, j.first, j.row),
        }[self.policy]

    @property
    def preemptive(self) -> bool:
        return self.policy in ("srtf", "srsf", "las", "tiresias-l")


def _next_time(jobs: list[Job], arrivals: list[Job], rules: Rules, now: float) -> float:
    times = [arrivals[0].submit] if arrivals else []
    running = [j for j in jobs if j.running]
    waiting = [j for j in jobs if not j.running]
    times += [now + j.left(now) for j in running]
    for j in running:
        if j.queue < len(rules.thresholds):
            times.append(j.since + rules.thresholds[j.queue] / j.gpus - j.attained)
    times += [j.since + rules.knob * j.attained for j in waiting if j.queue > 0 and rules.knob < inf]
    if running and waiting and rules.round_s < inf:
        times.append((now // rules.round_s + 1) * rules.round_s)
    return min(times)


def _decide(jobs: list[Job], rules: Rules, free: int, now: float) -> None:
    chosen: set[int] = set()
    if not rules.preemptive:
        chosen = {j.row for j in jobs if j.running}
        free -= sum(j.gpus for j in jobs if j.running)
    for job in sorted((j for j in jobs if j.row not in chosen), key=rules.key(now)):
        if job.gpus <= free:
            free -= job.gpus
            chosen.add(job.row)
        elif rules.strict:
            break
    for job in jobs:
        if (job.row in chosen) != job.running:
            job.flip(now)


def _decide_easy(jobs: list[Job], free: int, now: float) -> None:
    """Submit order; once the head does not fit, others pass only if they cannot delay it."""
    running = [j for j in jobs if j.running]
    free -= sum(j.gpus for j in running)
    shadow, extra, blocked = inf, 0, False
    for job in sorted((j for j in jobs if not j.running), key=lambda j: (j.tier, j.row)):
        if not blocked and job.gpus > free:
            blocked, extra = True, free
            for end in sorted({now + j.left(now) for j in running}):
                extra += sum(j.gpus for j in running if now + j.left(now) == end)
                if extra >= job.gpus:
                    shadow, extra = end, extra - job.gpus
                    break
            continue
        if job.gpus > free:
            continue
        short = now + job.work <= shadow
        if blocked and not short and job.gpus > extra:
            continue
        if blocked and not short:
            extra -= job.gpus
        free -= job.gpus
        job.flip(now)
        running.append(job)


def finish_times(
    rows: list[Row], gpus: int, rules: Rules, draws: list[float] | None = None, tiers: list[int] | None = None
) -> list[float]:
    """Finish time of each job; rows are in order of submission."""
    assert all(limit % row[1] == 0 for limit in rules.thresholds for row in rows)
    everyone = [
        Job(k, *row, draw=draws[k] if draws else 0.0, tier=tiers[k] if tiers else 0) for k, row in enumerate(rows)
    ]
    arrivals, active, now = list(everyone), [], 0.0
    while arrivals or active:
        now = _next_time(active, arrivals, rules, now)
        for job in active:
            if job.running and job.left(now) <= 0:
                job.flip(now)
                job.finish = now
            elif job.running:
                while job.queue < len(rules.thresholds) and (
                    (job.attained + job.ran(now)) * job.gpus >= rules.thresholds[job.queue]
                ):
                    job.queue += 1
            elif job.queue > 0 and now - job.since >= rules.knob * job.attained:
                job.queue, job.attained = 0, 0
        active = [j for j in active if j.finish == inf]
        while arrivals and arrivals[0].submit <= now:
            arrivals[0].since = now
            active.append(arrivals.pop(0))
        if rules.policy == "easy":
            _decide_easy(active, gpus, now)
        else:
            _decide(active, rules, gpus, now)
    return [j.finish for j in everyone]
