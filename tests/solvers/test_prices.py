"""Prices against the plain program, the worked examples of the specification, and the edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import assert_feasible, delivered, distinct_case, seeds

from cotenant import solvers
from cotenant.solvers import Need, OutOfTime, SolverError, compiled, lp_reference, price_kernels, prices

EXAMPLE = ([[4, 1], [2, 1]], [1, 1], [1, 1])


def search(rates: object, need: Need) -> prices._Search:
    return prices._Search(solvers.instance(rates, [1, 1], [1, 1]), need, None)


def test_two_jobs_two_types() -> None:
    found = solvers.max_min(*EXAMPLE)
    assert found.value == pytest.approx(1.75, rel=1e-9)
    assert found.x == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]))
    assert found.prices @ [1, 1] == pytest.approx(1)


def test_bounds_at_given_prices() -> None:
    one = search(EXAMPLE[0], Need(np.ones(2)))
    one.step(np.array([0.9, 0.1]), 1e-13)
    assert one.theta == pytest.approx(1.75)
    two = search(EXAMPLE[0], Need(np.ones(2)))
    two.step(np.array([0.6, 0.4]), 1e-13)
    assert two.theta == 2.0
    assert two.columns.usage[0] == pytest.approx([1.5, 0])


def test_makespan_and_sum_of_the_example() -> None:
    found = solvers.makespan(*EXAMPLE, work=[8, 4])
    assert found.value == pytest.approx(20 / 7)
    assert found.x == pytest.approx(np.array([[0.6, 0.4], [0.4, 0.6]]))
    assert solvers.max_sum(*EXAMPLE).value == pytest.approx(5)


def test_finish_time_of_two_jobs_on_one_gpu() -> None:
    found = solvers.finish_time([[1], [1]], [1, 1], [1], work=[100, 300], elapsed=[50, 0], fair=[200, 600])
    assert found.value == pytest.approx((5 + math.sqrt(17)) / 8, rel=1e-8)
    assert found.x[:, 0] == pytest.approx([0.56155281, 0.43844719], abs=1e-6)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_every_family_equals_the_plain_program(seed: int) -> None:
    case = distinct_case(seed)
    inst = case.inst
    for need in (Need(np.ones(len(case.work))), Need(case.weights), Need(case.work, case.fair, case.elapsed)):
        plain = lp_reference.solve_need(inst, need)
        found = solvers.solve_need(inst, need, tol=1e-7)
        assert_feasible(inst, found)
        assert found.gap <= 1e-7
        assert found.value == pytest.approx(plain.value, rel=1e-6)
        able = Need(np.where(inst.best > 0, need.work, 0), need.span, need.elapsed)
        assert able.attained(delivered(inst, found)) == pytest.approx(found.value, rel=1e-6)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_sum_equals_the_plain_program(seed: int) -> None:
    case = distinct_case(seed)
    values = case.inst.rates * case.weights[:, None]
    plain = lp_reference.solve_sum(case.inst, values)
    found = solvers.max_sum(case.inst.rates, case.inst.gangs, case.inst.capacity, values)
    assert_feasible(case.inst, found)
    assert found.value == pytest.approx(plain.value, rel=2e-6, abs=1e-9)
    assert (values * found.x).sum() == pytest.approx(found.value, rel=1e-6, abs=1e-9)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_a_warm_start_changes_nothing_but_the_way(seed: int) -> None:
    case = distinct_case(seed, jobs=30)
    cold = solvers.solve_need(case.inst, Need(case.weights), tol=1e-8)
    warm = solvers.solve_need(case.inst, Need(case.weights * 1.1), tol=1e-8, warm=cold)
    assert warm.value == pytest.approx(cold.value / 1.1, rel=1e-7)
    lost = solvers.solve_need(case.inst, Need(case.work), tol=1e-8, warm=cold)
    assert lost.value == pytest.approx(solvers.solve_need(case.inst, Need(case.work), tol=1e-8).value, rel=1e-7)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_counts_stand_for_equal_jobs(seed: int) -> None:
    case = distinct_case(seed, jobs=6)
    inst, counts = case.inst, np.arange(1, len(case.work) + 1)
    short = solvers.max_min(inst.rates, inst.gangs, inst.capacity, case.weights, counts=counts, tol=1e-8)
    rows = np.repeat(np.arange(len(counts)), counts)
    whole = solvers.max_min(inst.rates[rows], inst.gangs[rows], inst.capacity, case.weights[rows], tol=1e-8)
    assert short.value == pytest.approx(whole.value, rel=1e-7)


@pytest.mark.slow
def test_compiled_and_plain_loops_agree_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    a = rng.lognormal(0, 1, (200, 4)) * (rng.random((200, 4)) < 0.8)
    a[:, 0] += 0.01
    work, span, elapsed = rng.uniform(0.1, 0.5, 200), rng.uniform(5, 9, 200), rng.uniform(0, 1, 200)
    mass, top, p = rng.choice([1.0, 2.0], 200), a.max(axis=1), rng.dirichlet(np.ones(4))
    for falling in (False, True):
        results = []
        for form in (
            price_kernels.respond_numpy,
            price_kernels.respond_loop,
            compiled.compiled(price_kernels.respond_loop),
        ):
            usage, sums, x = np.zeros(4), np.zeros(2), np.zeros((200, 4))
            form(a, mass, top, work, span, elapsed, falling, 1.3, p, usage, sums, x)
            results.append((usage, sums, x))
        for other in results[1:]:
            for mine, theirs in zip(results[0], other, strict=True):
                assert (mine == theirs).all()


def test_types_and_jobs_that_do_not_count() -> None:
    found = solvers.max_min([[1, 5, 2], [0, 3, 0], [4, 4, 0]], [1, 1, 8], [2, 0, 1])
    assert found.left_out.tolist() == [1, 2]
    assert (found.x[:, 1] == 0).all()
    assert (found.x[1:] == 0).all()
    assert found.value == pytest.approx(2)


def test_nobody_there() -> None:
    empty = solvers.max_min(np.zeros((0, 2)), [], [1, 1])
    assert empty.x.shape == (0, 2)
    done = solvers.makespan([[1.0]], [1], [1], work=[0])
    assert done.value == 0
    assert (done.x == 0).all()
    nowhere = solvers.max_min([[0.0, 0.0]], [1], [1, 1])
    assert nowhere.left_out.tolist() == [0]


def test_jobs_that_limit_alone_leave_capacity_unused() -> None:
    found = solvers.max_min([[1.0, 1.0]], [1], [50, 50])
    assert found.value == pytest.approx(1)
    assert found.x.sum() == pytest.approx(1)


def test_a_budget_of_nothing_is_a_typed_error_with_what_was_found() -> None:
    rng = np.random.default_rng(5)
    inst = solvers.instance(rng.lognormal(0, 1, (400, 3)), rng.choice([1, 2], 400), [30, 20, 10])
    with pytest.raises(OutOfTime) as caught:
        solvers.solve_need(inst, Need(np.ones(400)), tol=1e-12, budget_s=0.0)
    best = caught.value.best
    assert best.gap > 1e-12
    assert_feasible(inst, solvers.check_feasible(best, inst))


@pytest.mark.parametrize(
    ("rates", "gangs", "capacity"),
    [([[1, 2]], [1], [1]), ([[-1.0]], [1], [1]), ([[float("nan")]], [1], [1]), ([[1.0]], [0], [1])],
)
def test_wrong_input_is_refused(rates: object, gangs: object, capacity: object) -> None:
    with pytest.raises(SolverError):
        solvers.max_min(rates, gangs, capacity)  # type: ignore[arg-type]


def test_an_answer_that_breaks_a_rule_is_not_used() -> None:
    inst = solvers.instance([[1.0, 0.0]], [2], [2, 2])
    good = solvers.max_min([[1.0, 0.0]], [2], [2, 2])
    for x in ([[1.5, 0]], [[0.5, 0.1]], [[-0.1, 0]], [[np.nan, 0]], [[0.1], [0.1]]):
        bad = solvers.Answer(np.array(x), 1, 1, good.prices, "test", 0, 0)
        with pytest.raises(SolverError):
            solvers.check_feasible(bad, inst)
    noisy = solvers.Answer(np.array([[1 + 1e-9, -1e-12]]), 1, 1, good.prices, "test", 0, 0)
    assert_feasible(inst, solvers.check_feasible(noisy, inst))


def test_unpacked_optima_of_the_authors_instances(golden_las: list) -> None:  # type: ignore[type-arg]
    for one in golden_las:
        wanted = one.entry["optimum_unpacked"]
        if wanted is None:
            continue
        inst = one.inst
        found = solvers.max_min(inst.rates * one.scale[:, None], inst.gangs, inst.capacity, tol=1e-8)
        assert found.value == pytest.approx(wanted, abs=6e-6)


def test_thousands_of_jobs_are_certified() -> None:
    rng = np.random.default_rng(0)
    rates = rng.lognormal(0, 1, (3000, 1)) * rng.uniform(1, 6, (3000, 3))
    for need in (
        Need(np.ones(3000)),
        Need(rng.lognormal(5, 1, 3000), rng.uniform(100, 900, 3000), rng.uniform(0, 99, 3000)),
    ):
        inst = solvers.instance(rates, rng.choice([1, 2, 4], 3000), [300, 200, 100])
        found = solvers.solve_need(inst, need)
        assert found.method == "prices"
        assert found.gap <= 1e-6
        assert_feasible(inst, found)
