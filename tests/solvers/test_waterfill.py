"""Water-filling: the exact vectors of the collection, and its own definition on random instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_cases import assert_feasible, distinct_case, seeds

from cotenant import solvers
from cotenant.solvers import SolverError, lp_reference
from cotenant.solvers.errors import SolverBudget
from cotenant.solvers.water_level import Water


def levels(rates: np.ndarray, capacity: np.ndarray, found: solvers.Answer) -> np.ndarray:
    even = rates @ (capacity / capacity.sum())
    return np.asarray((rates * found.x).sum(axis=1) / np.where(even > 0, even, 1))


@pytest.mark.parametrize("name", ["fairness_real", "fifo_real", "fairness_random", "fifo_random"])
def test_exact_vectors(golden: Any, name: str) -> None:
    data, result = golden["hierarchical"], golden["hierarchical"]["results"][name]
    rows = data["throughputs_real_steps_per_s" if result["throughputs"] == "real" else "throughputs_random"]
    rates = np.array([row[-3:] for row in rows], dtype=float)
    inner = result["inner_policy"]
    for step in result["by_number_of_jobs"]:
        n = step["jobs"]
        weights = np.where(np.arange(n) % 2 == 0, 1, 2) if inner == "fairness" else np.ones(n)
        for how in ("aware", "agnostic"):
            mine = rates[:n] if how == "aware" else np.ones((n, 3))
            found = solvers.hierarchical(
                mine, np.ones(n), [3, 3, 3], weights, np.arange(n) // 6, [1, 2, 3], inner=inner
            )
            got = levels(mine, np.array([3.0, 3, 3]), found)
            assert got == pytest.approx(np.array(step[f"{how}_exact"]), abs=1.1e-5), (n, how)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_nobody_can_be_raised_alone_in_the_end(seed: int) -> None:
    case = distinct_case(seed, jobs=7, types=3)
    inst = case.inst
    if not (inst.best > 0).any():
        return
    entity = np.arange(len(case.work)) % 3
    inner = "fifo" if seed % 2 else "fairness"
    found = solvers.hierarchical(inst.rates, inst.gangs, inst.capacity, case.weights, entity, [1, 2, 3], inner=inner)
    assert_feasible(inst, found)
    kept = (inst.rates * found.x).sum(axis=1) * (1 - 1e-11)  # slack of one job can lift another by a thousand times
    for i in np.flatnonzero(inst.best > 0):
        values = np.zeros(inst.rates.shape)
        values[i] = inst.rates[i]
        top = lp_reference.solve_sum(inst, values, required=kept).value
        assert top <= kept[i] + 1e-5 * inst.best[i]


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_the_lowest_flat_level_is_the_max_min(seed: int) -> None:
    case = distinct_case(seed, jobs=7, types=3)
    inst = case.inst
    if not (inst.best > 0).any():
        return
    found = solvers.hierarchical(inst.rates, inst.gangs, inst.capacity, case.weights)
    even = inst.rates @ (inst.capacity / inst.capacity.sum())
    scale = inst.gangs / (case.weights * np.where(even > 0, even, 1))
    best = solvers.max_min(inst.rates * scale[:, None], inst.gangs, inst.capacity, tol=1e-8)
    rate = (inst.rates * found.x).sum(axis=1) * scale
    assert rate[inst.best > 0].min() == pytest.approx(best.value, rel=2e-6)


def levels_by_one_program(
    rates: np.ndarray, inst: solvers.Instance, entity: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """Water-filling in order by its definition: all jobs in one program, the first unfixed job of each entity rises."""
    water = Water(solvers.Instance(rates, inst.gangs, inst.capacity, inst.best), SolverBudget(np.inf), presolve=False)
    fixed = (inst.best <= 0) | (share[entity] <= 0)
    floor = np.zeros(len(fixed))
    while not fixed.all():
        waiting = np.flatnonzero(~fixed)
        heads = waiting[np.unique(entity[waiting], return_index=True)[1]]
        speed = np.zeros(len(fixed))
        speed[heads] = share[entity[heads]] / inst.gangs[heads]
        level = water.rise(speed, floor, fixed)
        assert level.fixed.any()
        floor, fixed = level.floor, fixed | level.fixed
    return floor


@given(seeds, st.booleans())
@settings(max_examples=40, deadline=None)
def test_in_order_the_small_programs_find_the_levels_of_the_large_one(seed: int, blind: bool) -> None:
    draw = np.random.default_rng(seed)
    jobs, types = int(draw.integers(1, 30)), int(draw.integers(1, 4))
    rates = np.ones((jobs, types)) if blind else draw.uniform(0.1, 2.0, (6, types))[draw.integers(0, 6, jobs)]
    rates = rates * (draw.random((jobs, types)) < draw.choice([0.85, 1.0]))
    capacity = draw.integers(1, 12, types).astype(float)
    inst = solvers.instance(rates, draw.choice([1, 1, 2, 4], jobs), capacity)
    entity, share = draw.integers(0, 3, jobs), draw.choice([0.0, 1.0, 1.5, 4.0], 3, p=[0.1, 0.3, 0.3, 0.3])
    found = solvers.hierarchical(inst.rates, inst.gangs, inst.capacity, None, entity, share, inner="fifo")
    assert_feasible(inst, found)
    even = inst.rates @ (inst.capacity / inst.capacity.sum())
    scaled = inst.rates / np.where(even > 0, even, 1)[:, None]
    expected = levels_by_one_program(scaled, inst, entity, share)
    assert levels(inst.rates, inst.capacity, found) == pytest.approx(expected, abs=2e-5)


def test_fifo_inside_an_entity_serves_in_order() -> None:
    found = solvers.hierarchical(np.ones((4, 1)), np.ones(4), [2], None, [0, 0, 0, 0], [1], inner="fifo")
    assert found.x[:, 0] == pytest.approx([1, 1, 0, 0], abs=1e-8)
    assert "levels" in found.note


def test_wrong_inner_policy_and_nobody() -> None:
    with pytest.raises(SolverError):
        solvers.hierarchical([[1.0]], [1], [1], inner="lifo")
    assert solvers.hierarchical(np.zeros((0, 1)), [], [1]).x.shape == (0, 1)
