"""Algebra of the cone programs of `cone`: vectors of rows, Nesterov and Todd's scaling, and the equations of a step.

A vector has a line for each job, its entries being the rows of that job: the bounds of its K fractions, its time, its
ratio, and three of its cone; one more line holds the rows of the pools. Variables of a job are its fractions and u, the
last line begins with the ratio.

In units of the scaling W the equations of a step are G' y - z = c and G'^T z = a. Jobs meet only in pools and ratio, so
each has a triangle R with R^T R = G'^T G' of its own rows, made by rotations that never form the product: its entries
are of all sizes near the end. Prices of pools and the ratio then follow from K + 1 equations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cotenant.core.jit import kernel
from cotenant.core.state import Cube, Matrix
from cotenant.core.workload import Floats


class Cones(NamedTuple):
    """A program: entries of its rows by job (and pool), and their limits."""

    bound: Matrix
    time: Matrix
    pool: Matrix
    rates: Matrix
    own: Floats
    wait: Floats
    most: Floats
    limit: Matrix


class Scaled(NamedTuple):
    """The scaling at a point, and what the equations need in its units."""

    w: Matrix  # of rows; the axis that cones are turned about
    size: Floats  # of cones
    middle: Matrix  # W z = s / W
    one: Matrix  # W^-1 (1, 1, 0) of each cone
    other: Matrix  # W^-1 (1, -1, 0)
    bound: Matrix
    time: Matrix
    pool: Matrix
    wait: Floats
    most: Floats
    triangle: Cube  # R, with 1 over its diagonal
    last: Matrix  # what R takes to a multiple of u alone, scaled to u = 1
    weight: Matrix  # of u in R: squared, and the part of that which is not of the ratio's row
    spread: Cube  # by pool: how a job's variables follow its price
    meet: Matrix  # the inverse of the equations of pools and ratio
    pull: Floats  # scratch of these
    seen: Floats  # scratch by job
    rest: Matrix  # what is still missing: of variables
    missing: Matrix  # and of rows


def scaled(jobs: int, pools: int) -> Scaled:
    """Room for it."""
    rows, by_pool = (jobs + 1, pools + 5), (jobs, pools)
    return Scaled(
        w=np.ones(rows), size=np.ones(jobs), middle=np.zeros(rows), one=np.zeros((jobs, 3)), other=np.zeros((jobs, 3)),
        bound=np.zeros(by_pool), time=np.zeros(by_pool), pool=np.zeros(by_pool), wait=np.zeros(jobs),
        most=np.zeros(jobs), triangle=np.zeros((jobs, pools + 1, pools + 1)), last=np.zeros((jobs, pools + 1)),
        weight=np.zeros((jobs, 2)), spread=np.zeros((jobs, pools, pools + 1)),
        meet=np.zeros((pools + 1, 2 * pools + 2)), pull=np.zeros(pools + 1), seen=np.zeros(jobs),
        rest=np.zeros((jobs + 1, pools + 1)), missing=np.zeros(rows),
    )  # fmt: skip


@kernel
def norm(v: Matrix, j: int, c: int) -> float:
    """What is above 0 inside a cone; its rows begin at c."""
    length = math.sqrt(v[j, c + 1] * v[j, c + 1] + v[j, c + 2] * v[j, c + 2])
    return float((v[j, c] - length) * (v[j, c] + length))


@kernel
def times(t: Scaled, v: Matrix, out: Matrix) -> None:
    """W v."""
    n, c = len(t.size), t.w.shape[1] - 3
    for j in range(n):
        for r in range(c):
            out[j, r] = t.w[j, r] * v[j, r]
        a, b, d = t.w[j, c], t.w[j, c + 1], t.w[j, c + 2]
        dot = 2.0 * (a * v[j, c] + b * v[j, c + 1] + d * v[j, c + 2])
        first, second, third = a * dot - v[j, c], b * dot + v[j, c + 1], d * dot + v[j, c + 2]
        out[j, c], out[j, c + 1], out[j, c + 2] = t.size[j] * first, t.size[j] * second, t.size[j] * third
    for k in range(c - 2):
        out[n, k] = t.w[n, k] * v[n, k]


@kernel
def over(t: Scaled, v: Matrix, out: Matrix) -> None:
    """W^-1 v."""
    n, c = len(t.size), t.w.shape[1] - 3
    for j in range(n):
        for r in range(c):
            out[j, r] = v[j, r] / t.w[j, r]
        a, b, d = t.w[j, c], t.w[j, c + 1], t.w[j, c + 2]
        dot = 2.0 * (a * v[j, c] - b * v[j, c + 1] - d * v[j, c + 2])
        first, second, third = a * dot - v[j, c], v[j, c + 1] - b * dot, v[j, c + 2] - d * dot
        out[j, c], out[j, c + 1], out[j, c + 2] = first / t.size[j], second / t.size[j], third / t.size[j]
    for k in range(c - 2):
        out[n, k] = v[n, k] / t.w[n, k]


@kernel
def scale(t: Scaled, s: Matrix, z: Matrix) -> None:
    """The scaling at slacks and prices."""
    n, c = len(t.size), t.w.shape[1] - 3
    for j in range(n):
        for r in range(c):
            t.w[j, r] = math.sqrt(s[j, r] / z[j, r])
        of_s, of_z = math.sqrt(norm(s, j, c)), math.sqrt(norm(z, j, c))
        dot = (s[j, c] * z[j, c] + s[j, c + 1] * z[j, c + 1] + s[j, c + 2] * z[j, c + 2]) / of_s / of_z
        half = 2.0 * math.sqrt((1.0 + dot) / 2.0)
        a = (s[j, c] / of_s + z[j, c] / of_z) / half + 1.0
        root, size = math.sqrt(2.0 * a), math.sqrt(of_s / of_z)
        a = a / root
        b = (s[j, c + 1] / of_s - z[j, c + 1] / of_z) / half / root
        d = (s[j, c + 2] / of_s - z[j, c + 2] / of_z) / half / root
        t.w[j, c], t.w[j, c + 1], t.w[j, c + 2], t.size[j] = a, b, d, size
        one, other = 2.0 * (a - b), 2.0 * (a + b)
        t.one[j, 0], t.one[j, 1], t.one[j, 2] = (a * one - 1.0) / size, (1.0 - b * one) / size, -d * one / size
        t.other[j, 0], t.other[j, 1] = (a * other - 1.0) / size, (-b * other - 1.0) / size
        t.other[j, 2] = -d * other / size
    for k in range(c - 2):
        t.w[n, k] = math.sqrt(s[n, k] / z[n, k])
    times(t, z, t.middle)


@kernel
def _rotate_in(t: Scaled, j: int, row: Floats) -> None:
    """One more row for the triangle of a job, whose diagonal is plain yet."""
    size = len(row)
    for k in range(size):
        if row[k] == 0.0:
            continue
        length = math.sqrt(t.triangle[j, k, k] * t.triangle[j, k, k] + row[k] * row[k])
        cos, sin = t.triangle[j, k, k] / length, row[k] / length
        for m in range(k, size):
            above, below = t.triangle[j, k, m], row[m]
            t.triangle[j, k, m], row[m] = cos * above + sin * below, cos * below - sin * above


@kernel
def _triangle(p: Cones, t: Scaled, j: int) -> None:
    """R of one job: bounds are a triangle already, then come its time, and its cone as two rows."""
    u, row = t.bound.shape[1], t.pull
    for k in range(u):
        t.bound[j, k] = p.bound[j, k] / t.w[j, k]
        t.time[j, k] = p.time[j, k] / t.w[j, u]
        t.pool[j, k] = p.pool[j, k] / t.w[len(t.size), k]
        for m in range(u + 1):
            t.triangle[j, k, m] = 0.0
        t.triangle[j, k, k], row[k] = t.bound[j, k], t.time[j, k]
    t.wait[j], t.most[j] = p.wait[j] / t.w[j, u + 1], p.most[j] / t.w[j, u + 1]
    a, b, d = t.one[j, 0], t.one[j, 1], t.one[j, 2]
    e, f, g = t.other[j, 0], t.other[j, 1], t.other[j, 2]
    length = math.sqrt(a * a + b * b + d * d)
    across = math.sqrt(
        (b * g - d * f) * (b * g - d * f) + (d * e - a * g) * (d * e - a * g) + (a * f - b * e) * (a * f - b * e)
    )
    t.triangle[j, u, u], row[u] = across / length * p.own[j], 0.0
    _rotate_in(t, j, row)
    for k in range(u):
        row[k] = length * p.rates[j, k]
    row[u] = (a * e + b * f + d * g) / length * p.own[j]
    _rotate_in(t, j, row)
    own = t.triangle[j, u, u] * t.triangle[j, u, u]
    t.weight[j, 0] = own + t.wait[j] * t.wait[j]
    t.weight[j, 1] = own / t.weight[j, 0]
    t.triangle[j, u, u] = math.sqrt(t.weight[j, 0])
    for k in range(u + 1):
        t.triangle[j, k, k] = 1.0 / t.triangle[j, k, k]


@kernel
def _both_ways(t: Scaled, j: int, x: Floats, first: int) -> None:
    """x / (R^T R), where everything before `first` is 0."""
    size = len(x)
    for k in range(first, size):
        value = x[k]
        for m in range(first, k):
            value -= t.triangle[j, m, k] * x[m]
        x[k] = value * t.triangle[j, k, k]
    for back in range(size):
        k = size - 1 - back
        value = x[k]
        for m in range(k + 1, size):
            value -= t.triangle[j, k, m] * x[m]
        x[k] = value * t.triangle[j, k, k]


@kernel
def _invert(meet: Matrix) -> None:
    """Put the inverse of the left half into the right one; rows and columns are brought to size first."""
    size = meet.shape[0]
    for k in range(size):
        for m in range(size):
            meet[k, size + m] = 1.0 if k == m else 0.0
    for k in range(size):
        best = k
        for m in range(k + 1, size):
            best = m if abs(meet[m, k]) > abs(meet[best, k]) else best
        for m in range(2 * size):
            meet[k, m], meet[best, m] = meet[best, m], meet[k, m]
        value = meet[k, k]
        for m in range(2 * size):
            meet[k, m] /= value
        for line in range(size):
            factor = meet[line, k]
            if line != k and factor != 0.0:
                for m in range(2 * size):
                    meet[line, m] -= factor * meet[k, m]


@kernel
def factor(p: Cones, t: Scaled) -> None:
    """Make ready to solve at this scaling."""
    n, pools = t.bound.shape
    for k in range(pools + 1):
        for m in range(pools + 1):
            t.meet[k, m] = -1.0 if k == m and k < pools else 0.0
    for j in range(n):
        _triangle(p, t, j)
        t.last[j, pools] = 1.0
        for back in range(pools):
            k, value = pools - 1 - back, 0.0
            for m in range(k + 1, pools + 1):
                value -= t.triangle[j, k, m] * t.last[j, m]
            t.last[j, k] = value * t.triangle[j, k, k]
        part = t.wait[j] * t.most[j] / t.weight[j, 0]
        for k in range(pools):
            for m in range(pools + 1):
                t.spread[j, k, m] = 0.0
            t.spread[j, k, k] = t.pool[j, k]
            _both_ways(t, j, t.spread[j, k], k)
            for m in range(pools):
                t.meet[k, m] -= t.pool[j, m] * t.spread[j, k, m]
            t.meet[k, pools] += part * t.pool[j, k] * t.last[j, k]
        t.meet[pools, pools] += t.most[j] * t.most[j] * t.weight[j, 1]
    for k in range(pools):
        t.meet[pools, k] = t.meet[k, pools]
    _equilibrate(t)


@kernel
def _equilibrate(t: Scaled) -> None:
    """Invert the equations of pools and ratio with rows and columns of one size."""
    size = len(t.pull)
    for k in range(size):
        largest = 0.0
        for m in range(size):
            largest = max(largest, abs(t.meet[k, m]))
        t.pull[k] = 1.0 / math.sqrt(largest)
    for k in range(size):
        for m in range(size):
            t.meet[k, m] *= t.pull[k] * t.pull[m]
    _invert(t.meet)
    for k in range(size):
        for m in range(size):
            t.meet[k, size + m] *= t.pull[k] * t.pull[m]


@kernel
def _alone(p: Cones, t: Scaled, j: int, a: Matrix, c: Matrix, y: Matrix) -> None:
    """The variables of a job if pools and ratio had no say."""
    u = t.bound.shape[1]
    cone, other = 0.0, 0.0
    for m in range(3):
        cone += t.one[j, m] * c[j, u + 2 + m]
        other += t.other[j, m] * c[j, u + 2 + m]
    seen = 0.0
    for k in range(u):
        y[j, k] = a[j, k] - t.bound[j, k] * c[j, k] + t.time[j, k] * c[j, u] - p.rates[j, k] * cone
        seen += t.last[j, k] * y[j, k]
    y[j, u] = a[j, u] - p.own[j] * other
    t.seen[j] = seen + y[j, u]
    y[j, u] += t.wait[j] * c[j, u + 1]
    _both_ways(t, j, y[j], 0)


@kernel
def _solve(p: Cones, t: Scaled, a: Matrix, c: Matrix, y: Matrix, z: Matrix) -> None:
    """y and z of G'^T z = a, G' y - z = c, roughly."""
    n, pools = t.bound.shape
    for k in range(pools):
        t.pull[k] = c[n, k]
    t.pull[pools] = a[n, 0]
    for j in range(n):
        _alone(p, t, j, a, c, y)
        for k in range(pools):
            t.pull[k] -= t.pool[j, k] * y[j, k]
        share = t.wait[j] / t.weight[j, 0] * t.seen[j] - t.weight[j, 1] * c[j, pools + 1]
        t.pull[pools] += t.most[j] * share
    for k in range(pools + 1):
        met = 0.0
        for m in range(pools + 1):
            met += t.meet[k, pools + 1 + m] * t.pull[m]
        if k < pools:
            z[n, k] = met
        else:
            y[n, 0] = met
    for j in range(n):
        _together(p, t, j, c, y, z)


@kernel
def _together(p: Cones, t: Scaled, j: int, c: Matrix, y: Matrix, z: Matrix) -> None:
    """The variables of a job with prices of pools and the ratio, then its own prices."""
    n, u = len(t.size), t.bound.shape[1]
    ratio = t.most[j] * y[n, 0]
    part, seen = t.wait[j] * ratio / t.weight[j, 0], t.seen[j]
    for m in range(u + 1):
        y[j, m] += part * t.last[j, m]
    for k in range(u):
        seen -= t.last[j, k] * t.pool[j, k] * z[n, k]
        for m in range(u + 1):
            y[j, m] -= t.spread[j, k, m] * z[n, k]
    time, rate = 0.0, 0.0
    for k in range(u):
        time += t.time[j, k] * y[j, k]
        rate += p.rates[j, k] * y[j, k]
        z[j, k] = -t.bound[j, k] * y[j, k] - c[j, k]
    z[j, u] = time - c[j, u]
    z[j, u + 1] = t.wait[j] / t.weight[j, 0] * seen - t.weight[j, 1] * (ratio + c[j, u + 1])
    for m in range(3):
        z[j, u + 2 + m] = -rate * t.one[j, m] - p.own[j] * y[j, u] * t.other[j, m] - c[j, u + 2 + m]


@kernel
def _what_is_missing(p: Cones, t: Scaled, a: Matrix, c: Matrix, y: Matrix, z: Matrix) -> None:
    """In the equations of a rough solution."""
    n, u = len(t.size), t.bound.shape[1]
    for k in range(u):
        t.missing[n, k] = c[n, k] + z[n, k]
    t.rest[n, 0] = a[n, 0]
    for j in range(n):
        cone, other, time, rate = 0.0, 0.0, 0.0, 0.0
        for m in range(3):
            cone += t.one[j, m] * z[j, u + 2 + m]
            other += t.other[j, m] * z[j, u + 2 + m]
        for k in range(u):
            back = -t.bound[j, k] * z[j, k] + t.time[j, k] * z[j, u] + t.pool[j, k] * z[n, k] - p.rates[j, k] * cone
            t.rest[j, k] = a[j, k] - back
            t.missing[j, k] = c[j, k] + t.bound[j, k] * y[j, k] + z[j, k]
            t.missing[n, k] -= t.pool[j, k] * y[j, k]
            time += t.time[j, k] * y[j, k]
            rate += p.rates[j, k] * y[j, k]
        t.rest[j, u] = a[j, u] - t.wait[j] * z[j, u + 1] + p.own[j] * other
        t.rest[n, 0] += t.most[j] * z[j, u + 1]
        t.missing[j, u] = c[j, u] - time + z[j, u]
        t.missing[j, u + 1] = c[j, u + 1] - (t.wait[j] * y[j, u] - t.most[j] * y[n, 0]) + z[j, u + 1]
        for m in range(3):
            there = rate * t.one[j, m] + p.own[j] * y[j, u] * t.other[j, m]
            t.missing[j, u + 2 + m] = c[j, u + 2 + m] + there + z[j, u + 2 + m]


@kernel
def find(
    p: Cones, t: Scaled, a: Matrix, c: Matrix, y: Matrix, z: Matrix, more: Matrix, further: Matrix, refined: int
) -> None:  # fmt: skip
    """Solve roughly, then for what is still missing, so many times; `more` and `further` are scratch like y and z."""
    n, u = len(t.size), t.bound.shape[1]
    _solve(p, t, a, c, y, z)
    for _ in range(refined):
        _what_is_missing(p, t, a, c, y, z)
        _solve(p, t, t.rest, t.missing, more, further)
        for j in range(n):
            for m in range(u + 1):
                y[j, m] += more[j, m]
            for r in range(u + 5):
                z[j, r] += further[j, r]
        y[n, 0] += more[n, 0]
        for k in range(u):
            z[n, k] += further[n, k]
