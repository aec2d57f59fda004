"""Space sharing over classes of jobs: equal to the plain program over pairs of jobs, and split back to jobs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from solver_cases import Case, assert_feasible, delivered, job_pairs, make_case, seeds

from cotenant import solvers
from cotenant.solvers import Need, SolverError, kinds, lp_reference, split


@given(seeds)
@settings(max_examples=70, deadline=None)
def test_classes_equal_the_program_over_job_pairs(seed: int) -> None:
    case = make_case(seed, jobs=12, types=3, kinds=3)
    inst = case.inst
    for need in (Need(np.ones(len(case.work))), Need(case.work), Need(case.work, case.fair, case.elapsed)):
        plain = lp_reference.solve_need(inst, need, pairs=job_pairs(case))
        found = solvers.solve_packed(inst, need, case.kind, case.pair)
        assert_feasible(inst, found)
        assert found.value == pytest.approx(plain.value, rel=1e-6)
        work = need.work.copy()
        work[found.left_out] = 0
        rate = delivered(inst, found, case.kind, case.pair)
        assert Need(work, need.span, need.elapsed).attained(rate) == pytest.approx(plain.value, rel=1e-6)


def test_sharing_helps_and_never_hurts() -> None:
    for seed in range(20):
        case = make_case(seed, jobs=12, types=3)
        alone = solvers.solve_need(case.inst, Need(case.work))
        packed = solvers.solve_packed(case.inst, Need(case.work), case.kind, case.pair)
        assert packed.value >= alone.value * (1 - 1e-6) or len(packed.left_out) < len(alone.left_out)


def test_named_forms_agree_with_the_general_one() -> None:
    case = make_case(11, jobs=12, types=3)
    inst = case.inst
    given_ = (inst.rates, inst.gangs, inst.capacity, case.kind, case.pair)
    packed = solvers.packed_max_min(*given_, scale=1 / case.weights)
    assert packed.value == pytest.approx(solvers.solve_packed(inst, Need(case.weights), case.kind, case.pair).value)
    soonest = solvers.packed_makespan(*given_, work=case.work)
    assert soonest.value == pytest.approx(1 / solvers.solve_packed(inst, Need(case.work), case.kind, case.pair).value)
    fair = solvers.packed_finish_time(*given_, work=case.work, elapsed=case.elapsed, fair=case.fair)
    need = Need(case.work, case.fair, case.elapsed)
    assert fair.value == pytest.approx(solvers.solve_packed(inst, need, case.kind, case.pair).value)


def test_a_lone_job_does_not_share_with_itself() -> None:
    found = solvers.packed_max_min([[1.0]], [1], [1], [0], [[[5.0]]])
    assert len(found.pairs) == 0
    two = solvers.packed_max_min([[1.0], [1.0]], [1, 1], [1], [0, 0], [[[0.8]]])
    assert two.value == pytest.approx(0.8)
    assert two.pairs.tolist() == [[0, 1]]


def test_gangs_of_different_size_do_not_share() -> None:
    pair = np.full((2, 2, 1), 0.9)
    found = solvers.packed_max_min([[1.0], [1.0]], [1, 2], [2], [0, 1], pair)
    assert len(found.pairs) == 0


def test_wrong_pair_tables_are_refused() -> None:
    for kind, pair in (([0, 1], np.ones((1, 1, 1))), ([0, 0], np.ones((1, 1, 2))), ([0, 0], -np.ones((1, 1, 1)))):
        with pytest.raises(SolverError):
            solvers.packed_max_min([[1.0], [1.0]], [1, 1], [1], kind, pair)


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_hours_are_shared_out_to_the_last_minute(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members, options = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    total = rng.dirichlet(np.ones(options)) * members * rng.uniform(0.2, 1.0)
    speed, own = rng.lognormal(0, 1, options), np.zeros(options)
    can, _ = split.reachable(total, speed, own, members)
    needed = np.diff(np.concatenate([[0.0], can]))
    order = rng.permutation(members)
    needed = 0.5 * needed[order] + 0.5 * needed[order][::-1]  # majorised by what can be reached
    hours, met = split.share_out(total, speed, own, needed)
    assert met
    assert hours.sum(axis=0) == pytest.approx(total)
    assert hours.sum(axis=1).max() <= 1 + 1e-9


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_a_group_pairs_up_with_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = int(rng.integers(2, 12))
    hours = np.ones(2) if members == 2 else 1.0 + rng.random(members)  # nobody above half of all
    one, two, length = split.within(hours)
    assert (one != two).all()
    assert len(length) <= members + 1
    got = np.bincount(one, length, members) + np.bincount(two, length, members)
    assert got == pytest.approx(hours)


def test_pairs_stay_few(golden_las: Any) -> None:
    for one in golden_las:
        found = kinds.solve(one.inst, Need(1 / one.scale), one.kind, one.pair)
        assert len(found.pairs) <= 4 * len(one.kind)


def test_packed_optima_of_the_authors_instances(golden_las: Any) -> None:
    for one in golden_las:
        inst = one.inst
        began = time.process_time()
        found = solvers.packed_max_min(inst.rates, inst.gangs, inst.capacity, one.kind, one.pair, scale=one.scale)
        took = time.process_time() - began
        assert took < 2.0
        assert_feasible(inst, found)
        rate = delivered(inst, found, one.kind, one.pair) * one.scale
        assert rate.min() == pytest.approx(found.value, rel=1e-7)
        if one.entry["optimum_packed"] is not None:
            assert found.value == pytest.approx(one.entry["optimum_packed"], abs=6e-6)


@pytest.mark.parametrize(
    "jobs", [64, pytest.param(128, marks=pytest.mark.slow), pytest.param(256, marks=pytest.mark.slow)]
)
def test_authors_instances_against_the_plain_program(golden_las: Any, jobs: int) -> None:
    rng = np.random.default_rng(0)
    one = next(g for g in golden_las if g.entry["n"] == jobs and not g.entry["multi_gpu"])
    n = len(one.kind)
    work = rng.lognormal(8, 0.3, n) / one.scale
    case = Case(one.inst, np.ones(n), work, rng.uniform(0, 3e3, n), np.full(n, 9e3), one.kind, one.pair)
    needs = [Need(1 / one.scale)] + ([Need(work), Need(work, case.fair, case.elapsed)] if jobs == 64 else [])
    for need in needs:
        plain = lp_reference.solve_need(one.inst, need, pairs=job_pairs(case), tol=1e-7)
        found = solvers.solve_packed(one.inst, need, one.kind, one.pair)
        assert found.value == pytest.approx(plain.value, rel=1e-6)


def test_splitting_tells_its_loss(golden_las: Any) -> None:
    one = next(g for g in golden_las if g.entry["n"] == 256 and not g.entry["multi_gpu"])
    whole = solvers.solve_packed(one.inst, Need(1 / one.scale), one.kind, one.pair, parts=1)
    found = solvers.solve_packed(one.inst, Need(1 / one.scale), one.kind, one.pair, parts=4)
    assert_feasible(one.inst, found)
    assert 0.97 * whole.value < found.value <= whole.value * (1 + 1e-9)
    assert found.bound >= whole.value * (1 - 1e-9)
    assert "4 parts" in found.note
    assert found.gap == pytest.approx(1 - found.value / found.bound)
