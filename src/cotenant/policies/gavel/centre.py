"""How the released Gavel code finds makespan fractions: a bisection that stops within 5 %, then any point.

"Any" is what an interior-point solver without objective returns: the analytic centre of all fractions that finish in
time, far from every bound. Other points of the same set give other schedules, so comparing with the released
simulator needs this one.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats, Ints

FIRST_S, LAST_S, PRECISION = 100.0, 1e6, 1.05
STEPS = 100
CLOSE = 1e-9  # squared Newton decrement from which one full step reaches the centre to rounding
THIN = 1e-9  # the set around the optimum is too thin to have a centre


def bisected(optimum_s: float) -> float:
    """The time at which the bisection of the released code stops when everything from `optimum_s` on is feasible."""
    low, high = FIRST_S, LAST_S
    while True:
        top, found = high, 0.0
        while PRECISION * low < high:
            middle = (low + high) / 2
            if middle >= optimum_s:
                high = found = middle
            else:
                low = middle
        if found:
            return found
        low, high = top, 10 * top


def centre(rates: Matrix, gangs: Ints, capacity: Floats, need: Floats, near: Matrix, slack: float) -> Matrix:
    """Analytic centre of { x >= 0, sum_k x <= 1, gangs @ x <= capacity, sum_k rates x >= need }.

    `near` lies in the set with every rate above `need` by the factor 1 + `slack`. Newton's method on the sum of the
    logarithms of all slacks: jobs are coupled only by the capacity of the pools, so a step costs one small system
    per job and one of the size of the pools. So close that the logarithms no longer tell the points apart, a full
    step stays inside and squares the error: it ends the search, or thin slacks would keep the error of a wide `x`.
    """
    if slack < THIN:
        return near
    even = capacity[None, :] / (len(gangs) * gangs[:, None])
    even = even / np.maximum(even.sum(axis=1), 1.0)[:, None] / 2
    share = slack / (1 + slack) / 2
    x = (1 - share) * near + share * even
    sizes = gangs.astype(np.float64)
    best = _logs(x, rates, sizes, capacity, need)
    for _ in range(STEPS):
        step, decrement = _newton(x, rates, sizes, capacity, need)
        if decrement < CLOSE:
            return np.asarray(x + step)
        length = 1.0
        while length > 1e-12:
            ahead = x + length * step
            value = _logs(ahead, rates, sizes, capacity, need)
            if value >= best + 0.1 * length * decrement:
                break
            length /= 2
        else:
            break
        x, best = ahead, value
    return np.asarray(x)


def _slacks(x: Matrix, rates: Matrix, sizes: Floats, capacity: Floats, need: Floats) -> tuple[Floats, Floats, Floats]:
    return 1.0 - x.sum(axis=1), (rates * x).sum(axis=1) - need, capacity - sizes @ x


def _logs(x: Matrix, rates: Matrix, sizes: Floats, capacity: Floats, need: Floats) -> float:
    """Sum of the logarithms of all slacks; minus infinity outside."""
    parts = (x.ravel(), *_slacks(x, rates, sizes, capacity, need))
    if min(float(part.min()) for part in parts) <= 0:
        return -np.inf
    return float(sum(np.log(part).sum() for part in parts))


def _newton(x: Matrix, rates: Matrix, sizes: Floats, capacity: Floats, need: Floats) -> tuple[Matrix, float]:
    """Direction of ascent, and its gain to first order."""
    time, speed, room = _slacks(x, rates, sizes, capacity, need)
    up = 1 / x - (1 / time)[:, None] + rates / speed[:, None] - sizes[:, None] / room[None, :]
    pools = len(capacity)
    bent = (1 / time**2)[:, None, None] + rates[:, :, None] * rates[:, None, :] / (speed**2)[:, None, None]
    bent[:, np.arange(pools), np.arange(pools)] += 1 / x**2
    inverse = np.linalg.inv(bent)
    alone = np.einsum("jkl,jl->jk", inverse, up)
    coupled = np.einsum("j,jkl->kl", sizes**2, inverse) + np.diag(room**2)
    shift = np.linalg.solve(coupled, sizes @ alone)
    step = alone - sizes[:, None] * (inverse @ shift)
    return step, float((up * step).sum())
