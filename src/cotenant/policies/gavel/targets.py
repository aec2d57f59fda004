"""Objectives: from what is believed of the jobs to time fractions per pool (Gavel, sections 4 and 5).

Aware objectives use effective throughput, the sum over pools of rate times fraction; agnostic ones ignore
that GPU types differ and only respect where a job cannot run at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cotenant import solvers
from cotenant.core.errors import InputError
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.gavel import cone, ordered, released
from cotenant.policies.gavel.levels import Memory, fair_finish
from cotenant.policies.rounds.problem import Problem, Targets

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to solve: parameters of the policy and quirks of the released code."""

    aware: bool = True
    sharing: bool = False
    budget_s: float = 1.0
    entity_weights: dict[int, float] | None = None
    inner: str = "fairness"
    memory: Memory = field(default_factory=Memory)
    interior: bool = False  # of several optima the one at which the released code's solver stops
    bisect: bool = False  # makespan: within 5 %, with `interior`
    copy_first_rate: bool = False  # agnostic: the rate of the first pool everywhere, even where it cannot run


def las(problem: Problem, options: TargetOptions) -> Targets:
    """Max-min of normalised effective throughput: s_j E_j / (w_j prop_j)."""
    if not options.aware and options.interior and options.copy_first_rate:
        alike = replace(problem, rates=np.ones_like(problem.rates), kind=np.zeros_like(problem.kind))
        return Targets(released.max_min(alike, problem.gangs / problem.weights, False).x * (problem.rates > 0))
    if not options.aware:
        return Targets(water_level(problem, options))
    even = problem.weights * problem.proportional
    scale = np.where(even > 0, problem.gangs / np.where(even > 0, even, 1.0), 0.0)
    if options.interior:
        return released.max_min(problem, scale, options.sharing)
    if options.sharing and problem.pair is not None:
        packed = solvers.packed_max_min(
            problem.rates, problem.gangs, problem.capacity, problem.kind, problem.pair, scale=scale,
            budget_s=options.budget_s,
        )  # fmt: skip
        return Targets(packed.x, packed.pairs, packed.pair_x, packed.note)
    answer = solvers.max_min(
        problem.rates * scale[:, None], problem.gangs, problem.capacity, tol=TOLERANCE, budget_s=options.budget_s
    )
    return Targets(answer.x, note=answer.note)


def water_level(problem: Problem, options: TargetOptions) -> Matrix:
    """Types ignored: each job the same time per weight and GPU, in every usable pool in proportion to its size.

    Where some jobs cannot run everywhere that may be more than a pool has; then time is filled up by programs. The
    released code gives time also where a job cannot run, and loses it there.
    """
    usable = (problem.rates > 0) & (problem.capacity > 0)[None, :]
    wanted = np.ones_like(usable) if options.copy_first_rate else usable
    even = wanted * problem.capacity[None, :]
    x: Matrix = _level_time(problem)[:, None] * even / np.maximum(even.sum(axis=1), 1e-300)[:, None] * usable
    if (problem.gangs @ x <= problem.capacity * (1 + 1e-9)).all():
        return x
    rates = usable.astype(np.float64)
    share = rates @ (problem.capacity / problem.capacity.sum())  # taken out again: time counts, wherever it is
    weights = problem.weights / np.where(share > 0, share, 1.0)
    return solvers.hierarchical(rates, problem.gangs, problem.capacity, weights, budget_s=options.budget_s).x


def _level_time(problem: Problem) -> Floats:
    """Time of each job if all pools were one: weight over GPUs times a level, at most all the time."""
    total = problem.capacity.sum()
    gangs = problem.gangs.astype(np.float64)
    per_level = problem.weights / gangs
    full = 1.0 / per_level  # level at which a job runs all the time
    order = np.argsort(full, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(gangs[order])[:-1]])  # GPUs of those that do
    rising = np.cumsum((gangs * per_level)[order][::-1])[::-1]
    levels = (total - before) / rising  # if exactly the jobs before run all the time
    level = float(levels[np.argmax(levels <= full[order])]) if (levels <= full[order]).any() else np.inf
    return np.asarray(np.minimum(1.0, level * per_level))


def finish_time(problem: Problem, options: TargetOptions) -> Targets:
    """Smallest worst ratio of finish time shared to finish time on an even share of one's own (Themis)."""
    seen = as_believed(problem, options)
    able = seen.isolated_rate > 0  # not while all its GPUs are down
    fair_s = np.where(able, seen.isolated_s + seen.left_s / np.where(able, seen.isolated_rate, 1.0), np.inf)
    seen = replace(seen, left_s=np.where(able, seen.left_s, 0.0))
    if options.sharing and problem.pair is not None:
        packed = solvers.packed_finish_time(
            seen.rates, seen.gangs, seen.capacity, seen.kind, problem.pair, work=seen.left_s, elapsed=seen.age_s,
            fair=fair_s, budget_s=options.budget_s,
        )  # fmt: skip
        return Targets(packed.x, packed.pairs, packed.pair_x, packed.note)
    if options.interior and able.all() and len(problem):
        return Targets(np.clip(cone.finish_time(seen, fair_s), 0.0, 1.0) * (problem.rates > 0))
    return Targets(fair_finish(seen, fair_s, options.budget_s, options.memory))


def makespan(problem: Problem, options: TargetOptions) -> Targets:
    """Everybody done as early as possible: smallest T with E_j >= left_j / T."""
    seen = as_believed(problem, options)
    if options.sharing and problem.pair is not None:
        packed = solvers.packed_makespan(
            seen.rates, seen.gangs, seen.capacity, seen.kind, problem.pair, work=seen.left_s, budget_s=options.budget_s
        )
        return Targets(packed.x, packed.pairs, packed.pair_x, packed.note)
    answer = solvers.makespan(
        seen.rates, seen.gangs, seen.capacity, work=seen.left_s, tol=TOLERANCE, budget_s=options.budget_s
    )
    if options.bisect and options.interior and len(problem):
        x = released.makespan(seen, released.bisected(answer.value)).x
        return Targets(x * (problem.rates > 0))
    return Targets(answer.x, note=answer.note)


def throughput(problem: Problem, options: TargetOptions) -> Targets:
    """Most steps per second in all; jobs with slow steps starve."""
    _only_aware("throughput", options)
    answer = solvers.max_sum(
        problem.rates * problem.steps_per_s[:, None], problem.gangs, problem.capacity, budget_s=options.budget_s
    )
    return Targets(answer.x, note=answer.note)


def cost(problem: Problem, options: TargetOptions) -> Targets:
    """Most steps per second for the money."""
    _only_aware("cost", options)
    value = problem.rates * problem.steps_per_s[:, None] / problem.prices[None, :]
    return Targets(solvers.max_sum(value, problem.gangs, problem.capacity, budget_s=options.budget_s).x)


def cost_slo(problem: Problem, options: TargetOptions) -> Targets:
    """As `cost`, with E_j >= left_j / (deadline_j - now) for whoever can still make its deadline.

    Deadlines that cannot all be kept are given up one by one, the most demanding first, so that one job does
    not cost the others theirs.
    """
    _only_aware("cost-slo", options)
    value = problem.rates * problem.steps_per_s[:, None] / problem.prices[None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        needed = problem.left_s / (problem.deadline_s - problem.now_s)
    needed = np.where(np.isfinite(needed) & (needed > 0), needed, 0.0)
    needed = np.where(needed <= problem.rates.max(axis=1), needed, 0.0)
    answer = solvers.max_sum_with_floors(
        value, problem.rates, needed, problem.gangs, problem.capacity, budget_s=options.budget_s
    )
    return Targets(answer.x, note=answer.note)


def hierarchical(problem: Problem, options: TargetOptions) -> Targets:
    """Water-filling over entities (tenants): weights between them, fair share or FIFO inside."""
    rates = problem.rates if options.aware else (problem.rates > 0).astype(np.float64)
    weights = np.ones(int(problem.tenant.max()) + 1 if len(problem) else 0)
    for tenant, weight in (options.entity_weights or {}).items():
        if tenant < len(weights):
            weights[tenant] = weight
    answer = solvers.hierarchical(
        rates, problem.gangs, problem.capacity, problem.weights, problem.tenant, weights,
        inner=options.inner, budget_s=options.budget_s,
    )  # fmt: skip
    return Targets(answer.x, note=answer.note)


def fifo(problem: Problem, options: TargetOptions) -> Targets:
    """In order of arrival, each job whole on its fastest type with room; the first that does not fit blocks."""
    targets = ordered.in_order(problem, np.arange(len(problem)), blocking=True)
    return ordered.pack_queued(problem, targets) if options.sharing else targets


def sjf(problem: Problem, options: TargetOptions) -> Targets:
    """Shortest remaining time on one's fastest type first, each whole on its fastest type with room."""
    seen = as_believed(problem, options)
    best = seen.rates.max(axis=1)
    shortest = np.argsort(np.where(best > 0, seen.left_s / np.where(best > 0, best, 1.0), np.inf), kind="stable")
    targets = ordered.in_order(seen, shortest, blocking=False)
    return ordered.pack_queued(problem, targets) if options.sharing else targets


def as_believed(problem: Problem, options: TargetOptions) -> Problem:
    """The problem as an agnostic policy sees it: one rate per job, wherever it can run."""
    if options.aware:
        return problem
    usable = problem.rates > 0
    if options.copy_first_rate:
        return replace(problem, rates=np.repeat(problem.rates[:, :1], problem.rates.shape[1], axis=1))
    weight = usable * problem.capacity[None, :]
    mean: Floats = (problem.rates * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0)
    return replace(problem, rates=usable * mean[:, None])


def _only_aware(name: str, options: TargetOptions) -> None:
    if not options.aware:
        raise InputError(f"policy 'gavel': objective={name} has no agnostic form; leave aware=true")


OBJECTIVES: dict[str, Callable[[Problem, TargetOptions], Targets]] = {
    "las": las,
    "fifo": fifo,
    "sjf": sjf,
    "ftf": finish_time,
    "makespan": makespan,
    "throughput": throughput,
    "cost": cost,
    "cost-slo": cost_slo,
    "hierarchical": hierarchical,
}
"""Name of the objective -> how to find its fractions."""
