"""The way of the method in `cone` from its starting point to where it stops, one kernel for all steps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cotenant.core.jit import entry, kernel
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.gavel.cone_kernels import Cones, Scaled, factor, find, norm, over, scale, times

TOLERANCE = 1e-6  # nearer than that the fractions no longer change
STEPS, PATIENCE = 100, 15  # so many steps without getting nearer
REFINED = 1  # times that what is missing in a solution is solved for
NEARLY, FARTHEST = 0.99, 0.999  # of the way to where something leaves its cone, and of a whole step
LEAST_CENTRING = 1e-4
_TAU, _KAPPA, _COST, _OFF, _TURN, _STEP_TAU, _STEP_KAPPA = range(7)


class ConeWalk(NamedTuple):
    """Where it is, and what a step needs; vectors are as in `cone_kernels`."""

    y: Matrix
    s: Matrix
    z: Matrix
    best: Matrix  # y over tau of the best point so far
    numbers: Floats  # the scale of all, the gap's slack, the cost of the ratio, ...
    off_y: Matrix  # what is missing in the equations of variables and ratio
    off_z: Matrix  # and of rows
    y1: Matrix  # how far a step goes for each unit of tau
    z1: Matrix
    dy: Matrix
    ds: Matrix
    dz: Matrix
    a: Matrix
    c: Matrix
    own: Matrix  # `off_z` in units of the scaling
    more: Matrix  # scratch like y
    further: Matrix  # scratch like z
    third: Matrix


def walk_of(jobs: int, pools: int, cost: float) -> ConeWalk:
    """Room for it."""
    variables, rows = ["y", "best", "off_y", "y1", "dy", "a", "more"], ConeWalk._fields
    made = {
        name: np.zeros((jobs + 1, pools + 1) if name in variables else (jobs + 1, pools + 5))
        for name in rows
        if name != "numbers"
    }
    return ConeWalk(**made, numbers=np.array([1.0, 1.0, cost, 0.0, 0.0, 0.0, 0.0]))


@kernel
def _dot(v: Matrix, w: Matrix) -> float:
    n, rows = v.shape[0] - 1, v.shape[1]
    total = 0.0
    for j in range(n):
        for r in range(rows):
            total += v[j, r] * w[j, r]
    for k in range(rows - 5):
        total += v[n, k] * w[n, k]
    return total


@kernel
def _lift(v: Matrix) -> None:
    """Well inside the cones."""
    n, c = v.shape[0] - 1, v.shape[1] - 3
    lack = -math.inf
    for j in range(n):
        for r in range(c):
            lack = max(lack, -v[j, r])
        lack = max(lack, math.sqrt(v[j, c + 1] * v[j, c + 1] + v[j, c + 2] * v[j, c + 2]) - v[j, c])
    for k in range(c - 2):
        lack = max(lack, -v[n, k])
    if lack < 0:
        return
    for j in range(n):
        for r in range(c + 1):
            v[j, r] += 1.0 + lack
    for k in range(c - 2):
        v[n, k] += 1.0 + lack


@kernel
def _longest(v: Matrix, step: Matrix) -> float:
    """How far along a step everything stays in its cone: c + 2 b t + a t^2 = 0 first at c / (sqrt(b^2 - a c) - b)."""
    n, c = v.shape[0] - 1, v.shape[1] - 3
    worst, far = 0.0, math.inf
    for j in range(n):
        for r in range(c):
            worst = min(worst, step[j, r] / v[j, r])
        a, of = norm(step, j, c), norm(v, j, c)
        b = v[j, c] * step[j, c] - v[j, c + 1] * step[j, c + 1] - v[j, c + 2] * step[j, c + 2]
        root = b * b - a * of
        if root >= 0.0:
            at = of / (math.sqrt(root) - b)
            if at > 0.0:
                far = min(far, at)
    for k in range(c - 2):
        worst = min(worst, step[n, k] / v[n, k])
    return float(min(far, 1.0 / -worst)) if worst < 0.0 else far


@kernel
def _forth(p: Cones, y: Matrix, out: Matrix, by: float, limit_by: float, rest: Matrix, rest_by: float) -> None:
    """by G y + limit_by limit + rest_by rest."""
    n, u = p.bound.shape
    for k in range(u):
        out[n, k] = limit_by * p.limit[n, k] + rest_by * rest[n, k]
    for j in range(n):
        time, rate = 0.0, 0.0
        for k in range(u):
            out[j, k] = limit_by * p.limit[j, k] + rest_by * rest[j, k] - by * p.bound[j, k] * y[j, k]
            out[n, k] += by * p.pool[j, k] * y[j, k]
            time += p.time[j, k] * y[j, k]
            rate += p.rates[j, k] * y[j, k]
        for r in range(u, u + 5):
            out[j, r] = limit_by * p.limit[j, r] + rest_by * rest[j, r]
        out[j, u] += by * time
        out[j, u + 1] += by * (p.wait[j] * y[j, u] - p.most[j] * y[n, 0])
        out[j, u + 2] -= by * (rate + p.own[j] * y[j, u])
        out[j, u + 3] -= by * (rate - p.own[j] * y[j, u])


@kernel
def _look(p: Cones, k: ConeWalk) -> None:
    """What is missing in the equations of variables, of the ratio, of rows, and of the gap."""
    n, u = p.bound.shape
    at, y, z = k.numbers, k.off_y, k.z
    y[n, 0] = -at[_COST] * at[_TAU]
    for j in range(n):
        cone = z[j, u + 2] + z[j, u + 3]
        for m in range(u):
            y[j, m] = p.bound[j, m] * z[j, m] - p.time[j, m] * z[j, u] - p.pool[j, m] * z[n, m] + p.rates[j, m] * cone
        y[j, u] = p.own[j] * (z[j, u + 2] - z[j, u + 3]) - p.wait[j] * z[j, u + 1]
        y[n, 0] += p.most[j] * z[j, u + 1]
    _forth(p, k.y, k.off_z, -1.0, at[_TAU], k.s, -1.0)
    at[_OFF] = -at[_KAPPA] - at[_COST] * k.y[n, 0] - _dot(p.limit, z)


@kernel
def _begin(p: Cones, t: Scaled, k: ConeWalk) -> None:
    """The smallest slacks and the smallest prices that fulfil their equations, lifted into the cones."""
    n, rows = k.s.shape[0] - 1, k.s.shape[1]
    for j in range(n + 1):
        for r in range(rows):
            k.ds[j, r] = 1.0 if r < rows - 2 else 0.0
    scale(t, k.ds, k.ds)
    factor(p, t)
    find(p, t, k.a, p.limit, k.y, k.s, k.more, k.further, REFINED)
    for j in range(n + 1):
        for r in range(rows):
            k.s[j, r] = -k.s[j, r]
            k.c[j, r] = 0.0
    k.a[n, 0] = -k.numbers[_COST]
    find(p, t, k.a, k.c, k.dy, k.z, k.more, k.further, REFINED)
    _lift(k.s)
    _lift(k.z)


@kernel
def _towards(p: Cones, t: Scaled, k: ConeWalk, share: float, aim: float) -> None:
    """The step for `share` of what is missing; c says the aim for products in units of the scaling, `aim` for tau's."""
    n, u = p.bound.shape
    at = k.numbers
    for j in range(n):
        for m in range(u + 1):
            k.a[j, m] = share * k.off_y[j, m]
    k.a[n, 0] = share * k.off_y[n, 0]
    find(p, t, k.a, k.c, k.dy, k.third, k.more, k.further, REFINED)
    over(t, k.third, k.dz)
    tau = (aim / at[_TAU] - share * at[_OFF] + at[_COST] * k.dy[n, 0] + _dot(p.limit, k.dz)) / at[_TURN]
    for j in range(n):
        for m in range(u + 1):
            k.dy[j, m] += tau * k.y1[j, m]
        for r in range(u + 5):
            k.dz[j, r] += tau * k.z1[j, r]
    k.dy[n, 0] += tau * k.y1[n, 0]
    for m in range(u):
        k.dz[n, m] += tau * k.z1[n, m]
    _forth(p, k.dy, k.ds, -1.0, tau, k.off_z, share)  # by rows: W has numbers of all sizes
    at[_STEP_TAU], at[_STEP_KAPPA] = tau, (aim - at[_KAPPA] * tau) / at[_TAU]


@kernel
def _how_far(k: ConeWalk) -> float:
    """How much of a step may be gone at most."""
    at, far = k.numbers, min(FARTHEST, _longest(k.s, k.ds), _longest(k.z, k.dz))
    if at[_STEP_TAU] < 0.0:
        far = min(far, -at[_TAU] / at[_STEP_TAU])
    if at[_STEP_KAPPA] < 0.0:
        far = min(far, -at[_KAPPA] / at[_STEP_KAPPA])
    return float(far)


@kernel
def _correct(t: Scaled, k: ConeWalk, share: float, mean: float) -> None:
    """c of the second step: `mean` in all products, less the error of the first step, which is in ds and dz."""
    n, c = t.w.shape[0] - 1, t.w.shape[1] - 3
    over(t, k.ds, k.further)
    times(t, k.dz, k.third)
    a, b, mid = k.further, k.third, t.middle
    for j in range(n):
        for r in range(c):
            k.c[j, r] = share * k.own[j, r] + mid[j, r] - (mean - a[j, r] * b[j, r]) / mid[j, r]
        first = mean - a[j, c] * b[j, c] - a[j, c + 1] * b[j, c + 1] - a[j, c + 2] * b[j, c + 2]
        second = -(a[j, c] * b[j, c + 1] + b[j, c] * a[j, c + 1])
        third = -(a[j, c] * b[j, c + 2] + b[j, c] * a[j, c + 2])
        lead = (mid[j, c] * first - mid[j, c + 1] * second - mid[j, c + 2] * third) / norm(mid, j, c)
        k.c[j, c] = share * k.own[j, c] + mid[j, c] - lead
        k.c[j, c + 1] = share * k.own[j, c + 1] + mid[j, c + 1] - (second - lead * mid[j, c + 1]) / mid[j, c]
        k.c[j, c + 2] = share * k.own[j, c + 2] + mid[j, c + 2] - (third - lead * mid[j, c + 2]) / mid[j, c]
    for m in range(c - 2):
        k.c[n, m] = share * k.own[n, m] + mid[n, m] - (mean - a[n, m] * b[n, m]) / mid[n, m]


@kernel
def _ahead(p: Cones, t: Scaled, k: ConeWalk) -> None:
    """One step: straight ahead to see how far that goes, then with so much centring, and the error corrected."""
    n, rows = k.s.shape[0] - 1, k.s.shape[1]
    at = k.numbers
    scale(t, k.s, k.z)
    factor(p, t)
    for j in range(n):
        for m in range(rows - 4):
            k.a[j, m] = 0.0
    k.a[n, 0] = -at[_COST]
    over(t, p.limit, k.c)
    find(p, t, k.a, k.c, k.y1, k.third, k.more, k.further, REFINED)
    over(t, k.third, k.z1)
    at[_TURN] = at[_KAPPA] / at[_TAU] - at[_COST] * k.y1[n, 0] - _dot(p.limit, k.z1)
    over(t, k.off_z, k.own)
    for j in range(n + 1):
        for r in range(rows):
            k.c[j, r] = k.own[j, r] + t.middle[j, r]
    product = at[_KAPPA] * at[_TAU]
    _towards(p, t, k, 1.0, -product)
    left = 1.0 - _how_far(k)
    centring = max(LEAST_CENTRING, left * left * left)
    mean = centring * (_dot(k.s, k.z) + product) / (n * (rows - 2) + rows - 5 + 1.0)
    _correct(t, k, 1.0 - centring, mean)
    _towards(p, t, k, 1.0 - centring, mean - product - at[_STEP_KAPPA] * at[_STEP_TAU])
    far = NEARLY * _how_far(k)
    for j in range(n + 1):
        for m in range(rows - 4):
            k.y[j, m] += far * k.dy[j, m]
        for r in range(rows):
            k.s[j, r] += far * k.ds[j, r]
            k.z[j, r] += far * k.dz[j, r]
    at[_TAU] += far * at[_STEP_TAU]
    at[_KAPPA] += far * at[_STEP_KAPPA]


@entry
def follow(p: Cones, t: Scaled, k: ConeWalk) -> int:
    """From the starting point until equations and gap are within the tolerance, or numbers no longer tell; how many
    steps that took. The best point's variables are left in `best`."""
    n, variables = k.y.shape[0] - 1, k.y.shape[1]
    at, least, since = k.numbers, math.inf, 0
    _begin(p, t, k)
    of_limit = max(1.0, math.sqrt(_dot(p.limit, p.limit)))
    for step in range(STEPS):
        _look(p, k)
        of_y = k.off_y[n, 0] * k.off_y[n, 0]
        for j in range(n):
            for m in range(variables):
                of_y += k.off_y[j, m] * k.off_y[j, m]
        gap = _dot(k.s, k.z) / at[_TAU] / max(at[_TAU], abs(at[_COST] * k.y[n, 0]))
        off = max(math.sqrt(_dot(k.off_z, k.off_z)) / of_limit, math.sqrt(of_y)) / at[_TAU]
        if max(off, gap) < least:
            least, since = max(off, gap), step
            for j in range(n):
                for m in range(variables):
                    k.best[j, m] = k.y[j, m] / at[_TAU]
        if least <= TOLERANCE or step - since > PATIENCE:
            return step
        _ahead(p, t, k)
        if math.isnan(at[_TAU]) or math.isinf(at[_TAU]):
            return step
    return STEPS
