"""From classes of equal jobs back to the jobs: who gets how much, and who shares with whom.

A class holds `total[o]` job-time of option o (alone on a type, or beside a class on a type); option o moves a job at
`speed[o]`. Its jobs differ only in the rate they need. Give the neediest job the fastest hour, the next one the next,
and so on: that yields the rates f_1 >= f_2 >= ..., and by averaging between jobs exactly those needs can be met whose
m largest add up to at most f_1 + ... + f_m, for every m (majorisation). The solver asks for just that.

Sharing inside a class has one more rule: nobody shares with itself, so one job takes part in at most half of it. Then
the conditions above are necessary only. Spreading such hours evenly first nearly always works; if not, a program over
the members decides, and where even that cannot meet the needs its duals say what the class lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.solvers.answer import Floats, Ints
from cotenant.solvers.errors import SolverBudget
from cotenant.solvers.program import Program

SHORT = 2e-9
"""Relative shortfall of a need that counts as none."""

_EPS = 1e-12


def reachable(total: Floats, speed: Floats, own: Floats, members: int) -> tuple[Floats, Floats]:
    """Largest joint rate of the m neediest jobs, m = 1 .. members, and the speed of their slowest moment.

    `own[o]` marks sharing inside the class.
    """
    order = np.argsort(-speed, kind="stable")
    hours = np.concatenate([[0.0], np.cumsum(total[order])])
    work = np.concatenate([[0.0], np.cumsum(total[order] * speed[order])])
    m = np.arange(1, members + 1, dtype=np.float64)
    rate = np.interp(m, hours, work)
    at = np.minimum(np.searchsorted(hours, m, side="left") - 1, len(order) - 1)
    slowest = np.where(m <= hours[-1], speed[order][at], 0.0)
    one = np.where(own > 0.0, total / 2.0, total)
    hours = np.concatenate([[0.0], np.cumsum(one[order])])
    work = np.concatenate([[0.0], np.cumsum(one[order] * speed[order])])
    rate[0] = np.interp(1.0, hours, work)
    place = int(np.searchsorted(hours, 1.0, side="left")) - 1
    slowest[0] = speed[order][place] if hours[-1] >= 1.0 else 0.0
    return rate, slowest


def share_out(total: Floats, speed: Floats, own: Floats, needed: Floats) -> tuple[Floats, bool]:
    """Job-time of each option for each job (members x options); whether every job gets what it needs."""
    members = len(needed)
    asked = float(needed.sum())
    even = np.full(members, 1.0 / members) if asked <= 0.0 else needed / asked
    if even.max() * total.sum() <= 1.0 + _EPS and (not own.any() or even.max() <= 0.5):
        time = np.asarray(even[:, None] * total[None, :])
    else:
        rank = np.argsort(-needed, kind="stable")
        time = np.zeros((members, len(total)))
        time[rank] = _fastest_first(total, speed, own, members)
        _level(time, speed, needed, rank)
    return time, bool((time @ speed >= needed * (1.0 - SHORT)).all())


@dataclass(frozen=True, slots=True)
class Lack:
    """What a class would need: value . total + fixed >= weight . needs must hold, and does not."""

    value: Floats
    fixed: float
    weight: Floats


def share_out_exactly(
    total: Floats, speed: Floats, own: Floats, beside: Floats, needed: Floats, budget: SolverBudget | None
) -> tuple[Floats, float, Lack]:
    """The same by a program: time, the part of the needs that can be met (at most 1), and what limits it.

    Time `beside` another class is handed out to the last minute, since that class counts on it.
    """
    members, count = len(needed), len(total)
    program = Program()
    columns = program.add_columns(members * count).reshape(members, count)
    part = int(program.add_columns(1, upper=1.0, cost=1.0)[0])
    option_rows = program.add_rows(count, lower=np.where(beside > 0.0, total, 0.0), upper=total)
    time_rows = program.add_rows(members, upper=1.0)
    need_rows = program.add_rows(members, lower=0.0)
    scale = max(float(needed.max(initial=0.0)), 1e-300)
    program.add_entries(option_rows[None, :], columns, 1.0)
    program.add_entries(time_rows[:, None], columns, 1.0)
    program.add_entries(need_rows[:, None], columns, speed[None, :] / scale)
    program.add_entries(need_rows, part, -needed / scale)
    for o in np.flatnonzero(own > 0.0):
        half_rows = program.add_rows(members, upper=0.0)
        program.add_entries(half_rows, columns[:, o], 1.0)
        program.add_entries(half_rows[:, None], columns[None, :, o], -0.5)
    solution = program.solve(budget)
    duals = solution.row_duals
    lack = Lack(duals[option_rows], float(duals[time_rows].sum()), -duals[need_rows] / scale)
    return np.maximum(solution.x[columns], 0.0), float(solution.x[part]), lack


def _fastest_first(total: Floats, speed: Floats, own: Floats, members: int) -> Floats:
    """Sharing inside the class evenly; then the first job takes the fastest hour, the next job the next one."""
    time = np.where(own > 0.0, total / members, 0.0)[None, :].repeat(members, axis=0)
    order = np.argsort(-speed, kind="stable")
    order = order[own[order] == 0.0]
    room = 1.0 - time[0].sum()
    bins = np.arange(1, members + 1) * room
    jobs, options, length = _overlaps(bins, np.cumsum(total[order])) if len(order) else _nothing()
    np.add.at(time, (jobs, order[options]), length)
    return time


def _level(time: Floats, speed: Floats, needed: Floats, rank: Ints) -> None:
    """Average between a job with too much and a needier-off one until all needs are met."""
    rate = time @ speed
    donors: list[int] = []
    for j in rank.tolist():
        while rate[j] < needed[j] * (1.0 - _EPS) and donors:
            i = donors[-1]
            spare, lack = rate[i] - needed[i], needed[j] - rate[j]
            f = min(1.0, min(spare, lack) / (rate[i] - rate[j]))
            mine = time[j].copy()
            time[j] = (1.0 - f) * mine + f * time[i]
            time[i] = (1.0 - f) * time[i] + f * mine
            rate[i], rate[j] = time[i] @ speed, time[j] @ speed
            if rate[i] <= needed[i] * (1.0 + _EPS):
                donors.pop()
        if rate[j] > needed[j] * (1.0 + _EPS):
            donors.append(j)


def between(first: Floats, second: Floats) -> tuple[Ints, Ints, Floats]:
    """Pair up the hours of two groups with equal sums: at most as many pairs as members (north-west corner)."""
    return _overlaps(np.cumsum(first), np.cumsum(second))


def within(hours: Floats) -> tuple[Ints, Ints, Floats]:
    """Pair up the hours of one group with itself: lay them on a line, fold it in the middle."""
    ends = np.cumsum(hours)
    half = ends[-1] / 2.0
    one, two, length = _overlaps(np.minimum(ends, half), np.clip(ends - half, 0.0, half))
    kept = one != two
    return one[kept], two[kept], length[kept]


def _nothing() -> tuple[Ints, Ints, Floats]:
    none = np.zeros(0, dtype=np.int64)
    return none, none, np.zeros(0)


def _overlaps(ends_a: Floats, ends_b: Floats) -> tuple[Ints, Ints, Floats]:
    """Overlaps of two partitions of one line, given by the right ends of their pieces."""
    top = min(float(ends_a[-1]), float(ends_b[-1]))
    cuts = np.unique(np.concatenate([np.minimum(ends_a, top), np.minimum(ends_b, top)]))
    cuts = cuts[cuts > 0.0]
    starts = np.concatenate([[0.0], cuts[:-1]])
    length = cuts - starts
    middle = (starts + cuts) / 2.0
    a = np.searchsorted(ends_a, middle)
    b = np.searchsorted(ends_b, middle)
    kept = length > _EPS * top
    return a[kept].astype(np.int64), b[kept].astype(np.int64), length[kept]
