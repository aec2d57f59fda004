"""The equations of a step of the cone method, solved job by job, against all of them at once."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.policies.gavel.cone_kernels import Cones, Scaled, factor, find, over, scale, scaled, times

FLIP = np.diag([1.0, -1.0, -1.0])


def program(draw: np.random.Generator, n: int, pools: int) -> Cones:
    bound, time, pool, rates = draw.uniform(0.2, 2.0, (4, n, pools))
    own, wait, most = draw.uniform(0.2, 2.0, (3, n))
    return Cones(bound, time, pool, rates, own, wait, most, draw.normal(size=(n + 1, pools + 5)))


def inside(draw: np.random.Generator, n: int, pools: int, sizes: float) -> np.ndarray:
    """A vector inside the cones, with entries of many sizes."""
    v = np.exp(draw.uniform(-sizes, sizes, (n + 1, pools + 5)))
    length = np.linalg.norm(v[:, pools + 3 :], axis=1)
    v[:, pools + 2] = length * (1.0 + np.exp(draw.uniform(-sizes, sizes, n + 1)))
    return v


def flat(v: np.ndarray, pools: int) -> np.ndarray:
    """Without the places in the last line that mean nothing."""
    return np.concatenate([v[:-1].ravel(), v[-1, :pools]])


def rows_of(p: Cones) -> np.ndarray:
    """G as one matrix: rows as in a vector, columns by job and then the ratio."""
    n, pools = p.bound.shape
    wide, own = pools + 1, pools + 5
    g = np.zeros((n * own + pools, n * wide + 1))
    for j in range(n):
        at, x, u = j * own, j * wide + np.arange(pools), j * wide + pools
        g[at + np.arange(pools), x] = -p.bound[j]
        g[at + pools, x] = p.time[j]
        g[at + pools + 1, u], g[at + pools + 1, -1] = p.wait[j], -p.most[j]
        for row, sign in ((pools + 2, 1.0), (pools + 3, -1.0)):
            g[at + row, x], g[at + row, u] = -p.rates[j], -sign * p.own[j]
        g[n * own + np.arange(pools), x] = p.pool[j]
    return g


def scaling_of(t: Scaled, pools: int) -> np.ndarray:
    """W as one matrix."""
    n, own = len(t.size), pools + 5
    w = np.diag(flat(t.w, pools))
    for j in range(n):
        at, turn = slice(j * own + pools + 2, (j + 1) * own), t.w[j, pools + 2 :]
        w[at, at] = t.size[j] * (2.0 * np.outer(turn, turn) - FLIP)
    return w


@pytest.mark.parametrize("seed", range(12))
def test_steps_solve_their_equations(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, pools = int(draw.integers(1, 8)), int(draw.integers(1, 5))
    p, t = program(draw, n, pools), scaled(n, pools)
    s, z = inside(draw, n, pools, 2.0), inside(draw, n, pools, 2.0)
    scale(t, s, z)
    factor(p, t)
    a, c = draw.normal(size=(n + 1, pools + 1)), draw.normal(size=(n + 1, pools + 5))
    y, found, more, further = np.zeros_like(a), np.zeros_like(c), np.zeros_like(a), np.zeros_like(c)
    find(p, t, a, c, y, found, more, further, 1)
    unknown, prices = np.append(y[:-1].ravel(), y[-1, 0]), flat(found, pools)
    inner = np.linalg.solve(scaling_of(t, pools), rows_of(p))
    assert inner.T @ prices == pytest.approx(np.append(a[:-1].ravel(), a[-1, 0]), abs=1e-8)
    assert inner @ unknown - prices == pytest.approx(flat(c, pools), abs=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_the_scaling_takes_prices_and_slacks_to_one_point(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, pools = 4, 3
    t, s, z = scaled(n, pools), inside(draw, n, pools, 3.0), inside(draw, n, pools, 3.0)
    scale(t, s, z)
    one, other = np.zeros_like(s), np.zeros_like(s)
    over(t, s, one)
    times(t, z, other)
    assert flat(one, pools) == pytest.approx(flat(t.middle, pools))
    assert flat(other, pools) == pytest.approx(flat(t.middle, pools))
    assert scaling_of(t, pools) @ flat(z, pools) == pytest.approx(flat(t.middle, pools))
