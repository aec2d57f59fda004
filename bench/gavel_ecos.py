"""Finish-time fairness by the released Gavel code's own solver, in the place of ours: `python -m bench.gavel --ecos`.

ECOS (package `ecos`, in the extra `bench`) gets the program as CVXPY hands it over: rows and columns are in the order
that `get_problem_data` shows. So a run shows what the released code would do, in a tenth of the time that CVXPY takes,
and `policies/gavel/cone.py` has something to be compared with. The product knows nothing of it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.gavel import cone
from cotenant.policies.rounds.problem import Problem

SOLVED = (0, 10)  # exit flags: optimal, and optimal but inaccurate


def use() -> None:
    """From now on, in this process and those forked from it."""
    try:
        import ecos  # noqa: F401
    except ImportError:
        sys.exit("bench.gavel: --ecos needs the package 'ecos': pip install 'cotenant[bench]'")
    cone.finish_time = finish_time


def finish_time(problem: Problem, fair_s: Floats) -> Matrix:
    """Fractions with the smallest largest ratio of finish times; an even share where ECOS gives up."""
    import ecos

    n, pools = problem.rates.shape
    cost, rows, limit, cones = program(problem, fair_s)
    found = ecos.solve(cost, rows, limit, cones, verbose=False)
    if found["info"]["exitFlag"] not in SOLVED:
        return problem.isolated
    return np.asarray(found["x"][1 : 1 + n * pools].reshape(pools, n).T)


def program(problem: Problem, fair_s: Floats) -> tuple[Floats, Any, Floats, dict[str, Any]]:
    """Least cost @ v with limit - rows @ v in the cones; v is the ratio, fractions pool by pool, then u of each job."""
    from scipy.sparse import csc_matrix

    n, pools = problem.rates.shape
    rates, job = problem.rates * problem.steps_per_s[:, None], np.arange(n)
    x, u = 1 + np.arange(n * pools).reshape(pools, n).T, 1 + n * pools + job
    entries: list[tuple[Any, Any, Any]] = [
        (job, u, problem.left_s * problem.steps_per_s / fair_s),
        (job, 0, -1.0),
        (n + np.arange(n * pools).reshape(n, pools), x, -1.0),
        (n + n * pools + np.arange(pools), x, problem.gangs[:, None]),
        (n + n * pools + pools + job[:, None], x, 1.0),
    ]
    flat = 2 * n + n * pools + pools
    for row, sign in ((flat + 3 * job, -1.0), (flat + 3 * job + 1, 1.0)):
        entries += [(row[:, None], x, -rates), (row, u, sign)]
    row, column, value = (
        np.concatenate([part.ravel() for part in parts])
        for parts in zip(*(np.broadcast_arrays(*entry) for entry in entries), strict=True)
    )
    rows = csc_matrix((value.astype(np.float64), (row, column)), shape=(flat + 3 * n, 1 + n * pools + n))
    rows.eliminate_zeros()
    limit = np.concatenate(
        [-problem.age_s / fair_s, np.zeros(n * pools), problem.capacity, np.ones(n), np.tile([0.0, 0.0, 2.0], n)]
    )
    cost = np.zeros(rows.shape[1])
    cost[0] = 1.0
    return cost, rows, limit, {"l": flat, "q": [3] * n, "e": 0}
