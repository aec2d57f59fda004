"""The modelling layer, least rates, and AlloX's lines."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import assert_feasible, delivered, distinct_case, seeds

from cotenant import solvers
from cotenant.core import jit
from cotenant.solvers import Infeasible, OutOfTime, SolverBudget, lp_reference
from cotenant.solvers.program import Program
from cotenant.solvers.small_lp import pack, play


def knapsack(integer: bool) -> Program:
    program = Program()
    items = program.add_columns(3, upper=1.0, cost=[5.0, 4.0, 3.0], integer=integer)
    room = program.add_rows(1, upper=4.0)
    program.add_entries(room[0], items, [3.0, 2.0, 2.0])
    return program


def test_linear_and_integer_columns() -> None:
    assert knapsack(False).solve().value == pytest.approx(4 + 5 * 2 / 3)
    assert knapsack(True).solve().value == pytest.approx(7)
    assert knapsack(False).solve(method="ipm").value == pytest.approx(4 + 5 * 2 / 3)


def test_a_program_can_change_between_solves() -> None:
    program = knapsack(False)
    first = program.solve()
    assert first.row_duals[0] == pytest.approx(5 / 3)
    program.add_row(np.array([0]), np.array([1.0]), upper=0.0)
    assert program.solve().value == pytest.approx(7)
    program.set_row_bounds(np.array([0]), 0.0, 2.0)
    assert program.solve().value == pytest.approx(4)
    program.set_cost(np.array([2]), 10.0)
    program.set_column_bounds(np.array([2]), 0.0, 0.5)
    program.set_entry(0, 1, 1.0)
    assert program.solve().value == pytest.approx(5 + 4)


def test_entries_of_one_cell_add_up() -> None:
    program = Program()
    x = program.add_columns(1, cost=1.0)
    row = program.add_rows(1, upper=6.0)
    program.add_entries(row, x, 1.0)
    program.add_entries(row, x, 2.0)
    assert program.solve().value == pytest.approx(2)


def test_no_solution_and_no_time() -> None:
    program = Program()
    x = program.add_columns(1, upper=1.0)
    row = program.add_rows(1, lower=2.0)
    program.add_entries(row, x, 1.0)
    with pytest.raises(Infeasible):
        program.solve()
    with pytest.raises(OutOfTime):
        knapsack(True).solve(SolverBudget(0.0))
    empty = Program()
    empty.add_rows(1, lower=1.0)
    with pytest.raises(Infeasible):
        empty.solve()


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_small_programs_equal_the_large_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 6)), int(rng.integers(1, 30))
    matrix, value = rng.uniform(0.1, 2, (rows, columns)), rng.uniform(0, 2, columns)
    program = Program()
    x = program.add_columns(columns, cost=value)
    program.add_entries(program.add_rows(rows, upper=1.0)[:, None], x[None, :], matrix)
    y, duals = pack(value, matrix, np.ones(rows))
    assert value @ y == pytest.approx(program.solve().value, abs=1e-9)
    assert duals.sum() == pytest.approx(value @ y, abs=1e-9)
    z, mix, prices = play(matrix)
    assert mix.sum() == pytest.approx(1)
    assert (prices @ matrix).min() == pytest.approx(z, abs=1e-9)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_small_programs_are_the_same_one_number_at_a_time(seed: int) -> None:
    """As compiled, and with many ties."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 8)), int(rng.integers(1, 40))
    matrix, value = rng.integers(0, 3, (rows, columns)) / 2.0, rng.integers(0, 4, columns) / 3.0
    matrix[0] += 0.1
    limit = rng.integers(1, 20, rows).astype(np.float64)
    usual = pack(value, matrix, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "enabled", lambda: True)
        one_by_one = pack(value, matrix, limit)
    for some, other in zip(usual, one_by_one, strict=True):
        assert some.tobytes() == other.tobytes()


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_least_rates_are_kept_or_given_up(seed: int) -> None:
    case = distinct_case(seed, jobs=8, types=3)
    inst = case.inst
    needed = inst.best * np.random.default_rng(seed).uniform(0, 1.2, len(inst.best))
    found = solvers.max_sum_with_floors(inst.rates, inst.rates, needed, inst.gangs, inst.capacity)
    assert_feasible(inst, found)
    kept = delivered(inst, found) >= needed * (1 - 1e-6)
    can = needed <= inst.best
    if "given up" not in found.note:
        assert kept.all()
        plain = lp_reference.solve_sum(inst, inst.rates, required=needed)
        assert found.value == pytest.approx(plain.value, rel=1e-6)
    elif can.all() and can.any():
        with pytest.raises(Infeasible):
            lp_reference.solve_sum(inst, inst.rates, required=needed)


def brute_force(times: np.ndarray, gpus: list[int]) -> float:
    slots = [(k, p) for k, count in enumerate(gpus) for _ in range(count) for p in range(1, len(times) + 1)]
    best = np.inf
    for chosen in itertools.permutations(slots, len(times)):
        best = min(best, sum(times[i, k] * p for i, (k, p) in enumerate(chosen)))
    return float(best)


def test_lines_equal_brute_force() -> None:
    for seed in range(15):
        rng = np.random.default_rng(seed)
        times = rng.uniform(1, 9, (3, 2))
        if seed % 3 == 0:
            times[0, 1] = np.inf
        gpus = [1, 2] if seed % 2 else [1, 1]
        assert solvers.shortest_total(times, gpus).cost == pytest.approx(brute_force(times, gpus))


def test_lines_respect_places_and_types() -> None:
    rng = np.random.default_rng(1)
    times = rng.uniform(1, 9, (60, 3))
    times[5] = np.inf
    times[:, 2] = np.where(np.arange(60) % 2, np.inf, times[:, 2])
    found = solvers.shortest_total(times, [2, 0, 3])
    assert found.type_[5] == -1
    placed = found.type_ >= 0
    assert np.isfinite(times[placed, found.type_[placed]]).all()
    assert 1 not in found.type_
    for k, room in ((0, 2), (2, 3)):
        assert np.bincount(found.place[found.type_ == k]).max() <= room


def test_a_thousand_jobs_are_lined_up_within_a_second() -> None:
    """Of the processor: what others on the machine take does not count."""
    rng = np.random.default_rng(0)
    times = rng.lognormal(8, 1, (1000, 1)) * rng.uniform(1, 6, (1000, 3))
    began_s = time.process_time()
    found = solvers.shortest_total(times, [36, 36, 36], budget_s=60.0)
    assert time.process_time() - began_s < 1.0
    assert (found.type_ >= 0).all()
