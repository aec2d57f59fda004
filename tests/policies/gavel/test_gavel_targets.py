"""Objectives beside the plain programs, closed forms and brute force; every answer is feasible."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from gavel_kit import assert_feasible, problem, random_problem, seeds, with_pairs
from hypothesis import example, given, settings

from cotenant import solvers
from cotenant.core.errors import InputError
from cotenant.policies.gavel.interior import AlikeProgram, solve
from cotenant.policies.gavel.released import bisected, makespan
from cotenant.policies.gavel.targets import OBJECTIVES, TargetOptions
from cotenant.policies.rounds.history import History
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.solvers import Need, instance, lp_reference

AWARE, AGNOSTIC = TargetOptions(budget_s=np.inf), TargetOptions(aware=False, budget_s=np.inf)
BLIND = ("las", "sjf", "ftf", "makespan", "hierarchical")
SHARING = ("las", "ftf", "makespan", "fifo", "sjf")


def rate(made: Problem, targets: Targets) -> np.ndarray:
    return np.asarray((made.rates * targets.x).sum(axis=1))


@pytest.mark.parametrize("name", OBJECTIVES)
@given(seed=seeds)
@settings(max_examples=12, deadline=None)
def test_every_answer_is_feasible(name: str, seed: int) -> None:
    made = random_problem(seed)
    assert_feasible(made, OBJECTIVES[name](made, AWARE))
    if name in BLIND:
        assert_feasible(made, OBJECTIVES[name](made, AGNOSTIC))


@pytest.mark.parametrize("name", SHARING)
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_every_answer_with_pairs_is_feasible(name: str, seed: int) -> None:
    made = with_pairs(random_problem(seed), seed)
    assert_feasible(made, OBJECTIVES[name](made, replace(AWARE, sharing=True)))


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_las_is_the_plain_program(seed: int) -> None:
    made = random_problem(seed)
    even = made.rates @ (made.capacity / made.capacity.sum())
    scale = made.gangs / (made.weights * even)
    inst = instance(made.rates * scale[:, None], made.gangs, made.capacity)
    best = lp_reference.solve_need(inst, Need(np.ones(len(made)))).value
    assert (rate(made, OBJECTIVES["las"](made, AWARE)) * scale).min() == pytest.approx(best, rel=2e-6)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_columns_for_spread_gangs_change_no_optimum(seed: int) -> None:
    """The paper's program has two columns per type, consolidated and spread; spread gangs are never faster."""
    made = random_problem(seed)
    jobs, types = made.rates.shape
    scale = made.gangs / (made.weights * (made.rates @ (made.capacity / made.capacity.sum())))
    spread = made.rates * np.random.default_rng(seed).uniform(0.3, 1.0, made.rates.shape)
    both = np.concatenate([made.rates, spread], axis=1) * scale[:, None]
    wide = 2 * types
    matrix, limit = np.zeros((2 * jobs + types, jobs * wide + 1)), np.ones(2 * jobs + types)
    for job in range(jobs):
        mine = slice(job * wide, (job + 1) * wide)
        matrix[job, mine], matrix[jobs + job, mine], matrix[jobs + job, -1] = 1.0, -both[job], 1.0
        matrix[2 * jobs :, mine] = np.tile(np.eye(types), 2) * made.gangs[job]
    limit[jobs : 2 * jobs], limit[2 * jobs :] = 0.0, made.capacity
    cost = np.zeros(jobs * wide + 1)
    cost[-1] = -1.0
    ones = np.ones(matrix.shape)
    best = solve(AlikeProgram(matrix, ones, limit, ones[:, 0], ones[0], cost))[-1]
    assert (rate(made, OBJECTIVES["las"](made, AWARE)) * scale).min() == pytest.approx(best, rel=1e-5)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_agnostic_las_is_the_plain_program_with_all_rates_one(seed: int) -> None:
    made = random_problem(seed)
    able = (made.rates > 0).astype(float)
    scale = made.gangs / made.weights
    best = lp_reference.solve_need(
        instance(able * scale[:, None], made.gangs, made.capacity), Need(np.ones(len(made)))
    ).value
    targets = OBJECTIVES["las"](made, AGNOSTIC)
    assert (targets.x.sum(axis=1) * scale).min() == pytest.approx(best, rel=2e-6)


def test_agnostic_las_gives_types_in_proportion_to_their_size() -> None:
    """Weights 1, 1, 1, 3 on 1 + 2 GPUs: 3 min(1, l) + min(1, 3 l) = 3 gives l = 2/3, a third of it on one GPU."""
    targets = OBJECTIVES["las"](problem(np.ones((4, 2)), [1, 2], weights=[1, 1, 1, 3]), AGNOSTIC)
    expected = np.outer([2 / 3, 2 / 3, 2 / 3, 1.0], [1 / 3, 2 / 3])
    assert targets.x == pytest.approx(expected, abs=1e-6)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_finish_time_fairness_is_the_plain_program(seed: int) -> None:
    made = random_problem(seed)
    fair = made.isolated_s + made.left_s / made.isolated_rate
    inst = instance(made.rates, made.gangs, made.capacity)
    best = lp_reference.solve_need(inst, Need(made.left_s, fair, made.age_s)).value
    options = TargetOptions(budget_s=np.inf)
    for _ in range(2):  # the second time it starts where the first one ended
        found = rate(made, OBJECTIVES["ftf"](made, options))
        assert ((made.age_s + made.left_s / found) / fair).max() == pytest.approx(best, rel=2e-6)


def test_finish_time_fairness_helps_beyond_a_job_at_full_speed() -> None:
    """Job 0 came long ago: its ratio is the largest whatever happens. The others still get all that is left."""
    made = problem(np.ones((4, 1)), [3], left_s=[1000, 100, 100, 100], age_s=[5000, 1, 1, 1])
    assert OBJECTIVES["ftf"](made, TargetOptions(budget_s=np.inf)).x[:, 0] == pytest.approx(
        [1, 2 / 3, 2 / 3, 2 / 3], rel=2e-2
    )


@pytest.mark.parametrize("interior", [False, True])
def test_finish_time_fairness_of_a_gang_by_hand(interior: bool) -> None:
    """Four GPUs each of two types; a job of one GPU at rates 2 and 1, a gang of four at 1 and 1/2.

    While there were four jobs the even share of the gang was 4 / (4 x 4) of each type, rate 3/8; 60 s of work count
    160 s. Of two jobs it has half of each, rate 3/4, and with 240 s left is done after 160 + 320 = 480 s. The other
    cannot use more than all its time: half of each type, rate 3/2, 300 s of work in 200 s. It sets the ratio, at full
    speed: (100 + 300 / 2) / 200 = 5/4. The gang must have a rate of 240 / (5/4 x 480 - 100) = 0.48, and cannot have
    more than what it is left: 3/4 on the first type and 1/4 on the second, 7/8.
    """
    four = problem([[2, 1], [1, 0.5], [2, 1], [2, 1]], [4, 4], gangs=[1, 4, 1, 1])
    assert four.isolated_rate == pytest.approx([1.5, 0.375, 1.5, 1.5])
    history = History(2, 180.0)
    history.room_for(np.arange(4))
    history.watch_isolated(np.arange(4), np.array([300.0, 300, 1, 1]), four.isolated_rate)
    two = problem([[2, 1], [1, 0.5]], [4, 4], gangs=[1, 4], left_s=[300, 240], age_s=[100, 100])
    so_far = history.watch_isolated(np.arange(2), two.left_s, two.isolated_rate)
    assert so_far == pytest.approx([0, 160])
    fair_s = so_far + two.left_s / two.isolated_rate
    assert fair_s == pytest.approx([200, 480])
    options = TargetOptions(budget_s=np.inf, interior=interior)
    found = rate(two, OBJECTIVES["ftf"](replace(two, isolated_s=so_far), options))
    ratio = (two.age_s + two.left_s / found) / fair_s
    assert ratio.max() == ratio[0] == pytest.approx(1.25, rel=1e-4)
    assert found[0] == pytest.approx(2, rel=1e-4)
    assert 0.48 <= found[1] <= 0.8751


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_makespan_is_the_plain_program(seed: int) -> None:
    made = random_problem(seed)
    best = lp_reference.solve_need(instance(made.rates, made.gangs, made.capacity), Need(made.left_s)).value
    found = rate(made, OBJECTIVES["makespan"](made, AWARE))
    assert (found / made.left_s).min() == pytest.approx(best, rel=2e-6)


@pytest.mark.parametrize("name", ["throughput", "cost"])
@given(seed=seeds)
@settings(max_examples=12, deadline=None)
def test_sums_are_the_plain_program(name: str, seed: int) -> None:
    made = random_problem(seed)
    values = made.rates * made.steps_per_s[:, None]
    values = values / made.prices if name == "cost" else values
    inst = instance(values, made.gangs, made.capacity)
    best = lp_reference.solve_sum(inst, values).value
    assert (OBJECTIVES[name](made, AWARE).x * values).sum() == pytest.approx(best, rel=2e-6)


def test_a_deadline_that_cannot_be_kept_does_not_cost_the_others_theirs() -> None:
    made = replace(
        problem([[1.0, 0.5], [1.0, 0.5], [3.0, 3.0]], [1, 1], left_s=[90, 1e6, 1e6]),
        deadline_s=np.array([1100.0, 1100.0, np.nan]),
    )
    assert rate(made, OBJECTIVES["cost-slo"](made, AWARE))[0] >= 0.9 - 1e-6


@pytest.mark.parametrize("name", ["throughput", "cost", "cost-slo"])
def test_objectives_without_an_agnostic_form_say_so(name: str) -> None:
    with pytest.raises(InputError, match="no agnostic form"):
        OBJECTIVES[name](problem([[1.0, 1.0]], [1, 1]), AGNOSTIC)


@given(seeds)
@settings(max_examples=15, deadline=None)
def test_pairs_never_make_the_objective_worse(seed: int) -> None:
    made = with_pairs(random_problem(seed, jobs=6), seed)
    even = made.rates @ (made.capacity / made.capacity.sum())
    scale = made.gangs / (made.weights * even)
    alone = (rate(made, OBJECTIVES["las"](made, AWARE)) * scale).min()
    shared = OBJECTIVES["las"](made, replace(AWARE, sharing=True))
    found = rate(made, shared)
    assert made.pair is not None
    for side in (0, 1):
        mine, other = shared.pairs[:, side], shared.pairs[:, 1 - side]
        np.add.at(found, mine, (made.pair[mine, other] * shared.pair_x).sum(axis=1))
    assert (found * scale).min() >= alone * (1 - 1e-5)


def test_fifo_goes_to_the_fastest_type_with_room_and_blocks() -> None:
    """v100 takes job 0, p100 job 1; job 2 wants two GPUs and blocks job 3, which would fit."""
    made = problem([[2.0, 1.0]] * 4, [1, 2], gangs=[1, 1, 2, 1])
    assert OBJECTIVES["fifo"](made, AWARE).x.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_sjf_does_not_block_and_takes_the_shortest() -> None:
    made = problem([[2.0, 1.0]] * 3, [1, 1], gangs=[1, 1, 1], left_s=[30, 10, 20])
    assert OBJECTIVES["sjf"](made, AWARE).x.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_fifo_packs_only_above_one_and_a_half() -> None:
    """Two jobs at 0.8 each gain 1.6 together, at 0.7 each 1.4."""
    for share, packed in ((0.8, 1), (0.7, 0)):
        made = replace(problem([[1.0], [1.0]], [1]), pair=np.full((2, 2, 1), share))
        assert len(OBJECTIVES["fifo"](made, replace(AWARE, sharing=True)).pairs) == packed


# -- AlloX and the released makespan ---------------------------------------------------------------------------------


def test_allox_matching_is_the_best_of_all_orders() -> None:
    """Four jobs, two GPUs of different types: total completion time against every split and every order."""
    draw = np.random.default_rng(4)
    for _ in range(20):
        seconds = draw.uniform(1, 20, (4, 2))
        best = min(
            sum(sum(np.cumsum([seconds[j, k] for j in order if where[j] == k])) for k in (0, 1))
            for where in product((0, 1), repeat=4)
            for order in permutations(range(4))
        )
        lines = solvers.shortest_total(seconds, np.array([1, 1]))
        assert (lines.place * seconds[np.arange(4), lines.type_]).sum() == pytest.approx(best)


@pytest.mark.parametrize("optimum_s", [50.0, 101.0, 3e4, 9.9e5, 1.2e6, 9.95e6, 3e7])
def test_the_released_bisection_is_never_below_and_within_five_percent(optimum_s: float) -> None:
    found = bisected(optimum_s)
    assert found >= optimum_s
    if optimum_s > 200 and not 9.5e5 < optimum_s < 1e6 and not 9.5e6 < optimum_s < 1e7:
        assert found <= 1.06 * optimum_s


@given(seeds)
@example(57)
@example(414)
@settings(max_examples=12, deadline=None)
def test_where_the_released_solver_stops_everybody_is_done_in_time(seed: int) -> None:
    made = random_problem(seed, zeros=0.0)
    found = solvers.makespan(made.rates, made.gangs, made.capacity, work=made.left_s)
    time_s = 1.03 * found.value
    targets = makespan(made, time_s)
    assert_feasible(made, Targets(targets.x * (made.rates > 0)))
    assert (rate(made, targets) >= made.left_s / time_s * (1 - 1e-6)).all()
