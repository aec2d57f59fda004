"""Synergy-opt, the yardstick: two programs in HiGHS with a time budget (OSDI'22, section 5.1).

Phase 1 takes the cluster as one machine and picks one point per job, none slower than its share, for the largest sum
of speeds against the share. Jobs of a kind are alike, so the program counts jobs per (kind, point) instead of having
a yes or no for each job: the same optimum, hundreds of times smaller. Phase 2 spreads these counts over the servers;
whole parts are placed as they come out, and what is left over goes the way of TUNE, in the room that remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.allocation.demand import Demands
from cotenant.core.sensitivity import CPU, MEM, RATE
from cotenant.core.workload import Floats, Ints
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.program import Program


@dataclass(frozen=True, slots=True)
class Shares:
    """Jobs per kind and point (`taken`), and the sum of their speeds against the proportional share."""

    taken: Ints
    value: float


def best_shares(
    jobs: Ints, gangs: Ints, demands: Demands, cpus: float, mem: float, budget_s: float, *, relaxed: bool = False
) -> Shares:
    """Phase 1 for `jobs[kind]` jobs of each kind on a machine of so many cores and so much memory."""
    kinds, width = demands.points.shape[:2]
    usable = np.arange(width)[None, :] < demands.count[:, None]
    gain = np.where(usable, demands.points[:, :, RATE] / np.maximum(demands.floor[:, None, RATE], 1e-12), 0.0)
    program = Program()
    upper = np.where(usable, jobs[:, None], 0).astype(np.float64)
    column = program.add_columns(kinds * width, upper=upper.ravel(), cost=gain.ravel(), integer=not relaxed)
    each = program.add_rows(kinds, lower=jobs, upper=jobs)
    host = program.add_rows(2, upper=np.array([cpus, mem]) + 1e-6)
    program.add_entries(np.repeat(each, width), column, 1.0)
    for row, amount in zip(host, (CPU, MEM), strict=True):
        program.add_entries(row, column, (gangs[:, None] * demands.points[:, :, amount]).ravel())
    found = program.solve(SolverBudget(budget_s), gap=1e-9)
    taken = found.x.reshape(kinds, width)
    return Shares(np.rint(taken).astype(np.int64), float(found.value))


def spread_over_servers(amounts: Ints, gangs: Ints, cpus: Floats, mem: Floats, cap: Floats, budget_s: float) -> Ints:
    """Phase 2: whole jobs of each class (`amounts` of `gangs` GPUs with so much per GPU) on each server.

    Gangs larger than a server stay out. As many jobs as possible are whole, since a basic solution splits few.
    """
    classes, servers = len(amounts), len(cap)
    program = Program()
    upper = np.where(gangs[:, None] <= cap[None, :, 0], amounts[:, None], 0).astype(np.float64)
    column = program.add_columns(classes * servers, upper=upper.ravel(), cost=1.0)
    each = program.add_rows(classes, upper=amounts)
    program.add_entries(np.repeat(each, servers), column, 1.0)
    for at, need in enumerate((gangs.astype(np.float64), gangs * cpus, gangs * mem)):
        rows = program.add_rows(servers, upper=cap[:, at] + 1e-6)
        program.add_entries(np.tile(rows, classes), column, np.repeat(need, servers))
    try:
        found = program.solve(SolverBudget(budget_s), method="simplex")
    except SolverError:
        return np.zeros((classes, servers), np.int64)
    return np.floor(found.x.reshape(classes, servers) + 1e-6).astype(np.int64)
