"""The plain programs, one variable per job (or pair of jobs) and type, in HiGHS.

Reference for the faster methods in tests, and the fallback when one of them misses its certificate. `Pairs` adds
space sharing: two jobs with gangs of one size hold the same GPUs, each at a rate of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.solvers.answer import Answer, Floats, Instance, Ints, relative_gap
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.need import Need
from cotenant.solvers.program import Program, Solution


@dataclass(frozen=True, slots=True)
class PairRates:
    """Which jobs may share GPUs: P x 2 job numbers, and P x 2 x K rates of the first and the second."""

    jobs: Ints
    rates: Floats

    def usable(self, inst: Instance) -> PairRates:
        """Only pairs of equal gangs in which both move somewhere; cells where one does not are emptied."""
        gangs = inst.gangs[self.jobs]
        fits = gangs[:, 0, None] <= inst.capacity[None, :]
        rates = np.where(((self.rates > 0.0).all(axis=1) & fits)[:, None, :], self.rates, 0.0)
        kept = (gangs[:, 0] == gangs[:, 1]) & (self.jobs[:, 0] != self.jobs[:, 1]) & (rates > 0.0).any(axis=(1, 2))
        return PairRates(self.jobs[kept], rates[kept])


@dataclass(slots=True)
class Model:
    """The rows common to all programs: time of each job, GPUs of each type, and a row with each job's rate."""

    program: Program
    inst: Instance
    pairs: PairRates | None
    single: tuple[Ints, Ints, Ints]
    shared: tuple[Ints, Ints, Ints] | None
    rate_rows: Ints
    gpu_rows: Ints

    def read(self, solution: Solution) -> tuple[Floats, Floats]:
        """Fractions of the jobs and of the pairs."""
        x: Floats = np.zeros(self.inst.rates.shape)
        columns, rows, types = self.single
        x[rows, types] = solution.x[columns]
        y = np.zeros((0 if self.pairs is None else len(self.pairs.jobs), len(self.inst.capacity)))
        if self.shared is not None:
            columns, rows, types = self.shared
            y[rows, types] = solution.x[columns]
        return np.clip(x, 0.0, 1.0), np.clip(y, 0.0, 1.0)

    def delivered(self, x: Floats, y: Floats) -> Floats:
        """Effective rate of every job."""
        rate: Floats = np.einsum("ij,ij->i", self.inst.rates, x)
        if self.pairs is not None and len(self.pairs.jobs):
            for side in (0, 1):
                part = np.einsum("ij,ij->i", self.pairs.rates[:, side], y)
                rate += np.bincount(self.pairs.jobs[:, side], part, len(rate))
        return rate

    def prices(self, solution: Solution, *, scaled: bool) -> Floats:
        """Duals of the GPU rows."""
        out = np.abs(solution.row_duals[self.gpu_rows])
        worth = float(out @ self.inst.capacity)
        return out / worth if scaled and worth > 0.0 else out


def model(
    inst: Instance,
    *,
    pairs: PairRates | None = None,
    values: Floats | None = None,
    pair_values: Floats | None = None,
    required: Floats | None = None,
    maximise: bool = True,
) -> Model:
    """Columns, time rows, GPU rows and rate rows (at least `required`)."""
    program = Program(maximise=maximise)
    n, types = inst.rates.shape
    rows, kinds = np.nonzero(inst.rates > 0.0)
    cost = 0.0 if values is None else values[rows, kinds]
    columns = program.add_columns(len(rows), cost=cost)
    time_rows = program.add_rows(n, upper=1.0)
    gpu_rows = program.add_rows(types, upper=inst.capacity)
    rate_rows = program.add_rows(n, lower=np.zeros(n) if required is None else required)
    program.add_entries(time_rows[rows], columns, 1.0)
    program.add_entries(gpu_rows[kinds], columns, inst.gangs[rows])
    program.add_entries(rate_rows[rows], columns, inst.rates[rows, kinds])
    shared = None
    pairs = None if pairs is None else pairs.usable(inst)
    if pairs is not None and len(pairs.jobs):
        at, on = np.nonzero(pairs.rates[:, 0] > 0.0)
        more = program.add_columns(len(at), cost=0.0 if pair_values is None else pair_values[at, on])
        for side in (0, 1):
            program.add_entries(time_rows[pairs.jobs[at, side]], more, 1.0)
            program.add_entries(rate_rows[pairs.jobs[at, side]], more, pairs.rates[at, side, on])
        program.add_entries(gpu_rows[on], more, inst.gangs[pairs.jobs[at, 0]])
        shared = (more, at, on)
    return Model(program, inst, pairs, (columns, rows, kinds), shared, rate_rows, gpu_rows)


def solve_need(
    inst: Instance, need: Need, *, pairs: PairRates | None = None, budget: SolverBudget | None = None, tol: float = 1e-9
) -> Answer:
    """Best theta at which every job gets its required rate (`need`).

    Falling needs are convex in theta: the program with their tangents gives a bound, and new tangents there a
    tighter one (Newton's method, from the side that cannot be had).
    """
    budget = budget or SolverBudget()
    able = _able(inst, pairs)
    need = Need(np.where(able, need.work, 0.0), need.span, need.elapsed)
    active = need.work > 0.0
    if not active.any():
        return Answer.nothing(inst, need.idle, "lp", budget.spent_s)
    theta = need.attained(_top(inst, pairs)) if need.falling else 0.0
    for _ in range(60):
        built = model(inst, pairs=pairs, required=_tangent(need, theta), maximise=not need.falling)
        level = _add_level(built, need.slope(theta), theta if need.falling else 0.0)
        solution = built.program.solve(budget)
        x, y = built.read(solution)
        bound = float(solution.x[level])
        value = need.attained(built.delivered(x, y))
        if not need.falling or relative_gap(value, bound) <= tol or bound <= theta:
            break
        theta = bound
    else:
        raise SolverError("lp: tangents did not converge")
    if (value > bound) != need.falling:
        bound = value
    jobs = np.zeros((0, 2), dtype=np.int64) if built.pairs is None else built.pairs.jobs
    left_out = np.flatnonzero(~able)
    prices = built.prices(solution, scaled=True)
    return Answer(x, value, bound, prices, "lp", budget.spent_s, relative_gap(value, bound), left_out, jobs, y)


def solve_sum(
    inst: Instance,
    values: Floats,
    *,
    pairs: PairRates | None = None,
    pair_values: Floats | None = None,
    required: Floats | None = None,
    budget: SolverBudget | None = None,
) -> Answer:
    """Largest sum of values x fractions, with a least rate for each job where `required` is given."""
    budget = budget or SolverBudget()
    built = model(inst, pairs=pairs, values=values, pair_values=pair_values, required=required)
    solution = built.program.solve(budget)
    x, y = built.read(solution)
    jobs = np.zeros((0, 2), dtype=np.int64) if built.pairs is None else built.pairs.jobs
    value = solution.value
    prices = built.prices(solution, scaled=False)
    return Answer(x, value, value, prices, "lp", budget.spent_s, 0.0, inst.left_out, jobs, y)


def _add_level(built: Model, slope: Floats, lower: float) -> int:
    level = int(built.program.add_columns(1, lower=lower, cost=1.0)[0])
    built.program.add_entries(built.rate_rows, level, -slope)
    return level


def _tangent(need: Need, theta: float) -> Floats:
    """Right-hand sides of rate - slope * level >= ... ."""
    return need.rate(theta) - need.slope(theta) * theta if need.falling else np.zeros(len(need.work))


def _top(inst: Instance, pairs: PairRates | None) -> Floats:
    top = inst.best.copy()
    if pairs is not None:
        usable = pairs.usable(inst)
        for side in (0, 1):
            np.maximum.at(top, usable.jobs[:, side], usable.rates[:, side].max(axis=1, initial=0.0))
    return top


def _able(inst: Instance, pairs: PairRates | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(_top(inst, pairs) > 0.0)
