"""The mechanism: history and deficits, the walk, leases, rounds, and the quirks of the released simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gavel_kit import experiment, jobs, problem, seeds, speeds, throughputs
from hypothesis import given, settings

from cotenant.compat import parse_compat, system
from cotenant.core.errors import InputError
from cotenant.policies import make_policy
from cotenant.policies.gavel.ordered import any_type
from cotenant.policies.rounds.history import History
from cotenant.policies.rounds.problem import Targets
from cotenant.policies.rounds.rounds import quirks_of
from cotenant.policies.rounds.select import by_priority, fill, pick, rank
from cotenant.sim.driver import Simulation, simulate

# -- history ---------------------------------------------------------------------------------------------------------


def test_deficit_is_promised_minus_received_since_the_last_solve() -> None:
    """X = 0.5 over 1,000 s and 300 s received after a head start of 180: 0.5 x 1000 - 300 = 200 behind."""
    history, ids = History(pools=2, head_start_s=180.0), np.array([0, 3])
    history.room_for(ids)
    history.settle(0.0)
    history.promise(ids, Targets(np.array([[0.5, 0.0], [0.25, 0.75]])), 0.0)
    assert history.received_s[ids].tolist() == [[180, 180], [180, 180]]
    history.receive(np.array([0, 3]), np.array([0, 1]), np.array([300.0, 750.0]))
    history.settle(1000.0)
    assert history.deficit_s[ids].tolist() == [[200, 0], [250, 0]]
    history.promise(ids[1:], Targets(np.array([[1.0, 0.0]])), 1000.0)
    assert history.known.tolist()[:4] == [False, False, False, True]
    assert history.received_s[3].tolist() == [180, 180]
    assert history.deficit_s[3].tolist() == [250, 0]
    assert history.target[0].tolist() == [0, 0]


def test_pairs_carry_their_deficit_however_they_are_written() -> None:
    history, ids = History(pools=1, head_start_s=180.0), np.array([4, 7, 9])
    history.room_for(ids)
    both = Targets(np.zeros((3, 1)), np.array([[0, 1], [1, 2]]), np.array([[0.5], [0.25]]))
    history.promise(ids, both, 0.0)
    history.receive_pairs(np.array([1]), np.array([0]), 100.0)
    history.settle(400.0)
    again = Targets(np.zeros((3, 1)), np.array([[2, 1], [0, 2]]), np.array([[1.0], [1.0]]))
    history.promise(ids, again, 400.0)
    assert history.pair_deficit_s[:, 0].tolist() == [0.0, 0.0]  # 0.25 x 400 - 100 for (7, 9); (4, 9) is new
    history.settle(500.0)
    assert history.pair_deficit_s[:, 0].tolist() == [100.0, 100.0]


def test_isolated_time_uses_the_rate_of_the_last_solve() -> None:
    history, ids = History(1, 180.0), np.array([0])
    history.room_for(ids)
    assert history.watch_isolated(ids, np.array([100.0]), np.array([0.5])).tolist() == [0.0]
    assert history.watch_isolated(ids, np.array([70.0]), np.array([0.25])).tolist() == [60.0]
    assert history.watch_isolated(ids, np.array([60.0]), np.array([1.0])).tolist() == [100.0]


# -- the walk --------------------------------------------------------------------------------------------------------


def walk(target, received, gangs, room, deficit=None, usable=None, pools=None):
    target, received = np.array(target, float), np.array(received, float)
    deficit = np.zeros_like(target) if deficit is None else np.array(deficit, float)
    usable = np.ones(target.shape, np.int64) if usable is None else np.array(usable)
    _, order = by_priority(target, received, deficit, usable)
    members = np.stack([np.arange(len(target)), np.full(len(target), -1)], axis=1)
    out = np.zeros((len(target), 2), np.int64)
    types = np.arange(len(room)) if pools is None else np.array(pools)
    taken = np.zeros(len(target), np.int64)
    count = pick(order, members, np.array(gangs), usable, np.ones_like(usable), types, np.array(room), taken, out)
    return [tuple(row) for row in out[:count].tolist()]


def test_whoever_is_furthest_behind_its_target_comes_first() -> None:
    assert walk([[0.5], [0.5], [0.4]], [[500], [180], [100]], [1, 1, 1], [2]) == [(2, 0), (1, 0)]


def test_a_gang_that_does_not_fit_blocks_nobody() -> None:
    assert walk([[0.9], [0.8], [0.1]], [[180]] * 3, [2, 4, 1], [3]) == [(0, 0), (2, 0)]


def test_ties_go_by_deficit_then_target_then_job() -> None:
    equal = [[0.5]] * 3
    assert walk(equal, [[180]] * 3, [1] * 3, [3]) == [(0, 0), (1, 0), (2, 0)]
    assert walk(equal, [[180]] * 3, [1] * 3, [3], deficit=[[0], [9], [5]]) == [(1, 0), (2, 0), (0, 0)]
    assert walk([[0.2], [0.4]], [[100], [200]], [1, 1], [2]) == [(1, 0), (0, 0)]


def test_idle_gpus_go_to_jobs_without_a_target_there_but_never_where_they_cannot_run() -> None:
    assert walk([[1, 0], [1, 0]], [[180, 180]] * 2, [1, 1], [1, 1]) == [(0, 0), (1, 1)]
    assert walk([[1, 0], [1, 0]], [[180, 180]] * 2, [1, 1], [1, 1], usable=[[1, 0], [1, 0]]) == [(0, 0)]


def test_types_are_walked_in_the_order_given() -> None:
    assert walk([[0.5, 0.5]], [[180, 180]], [1], [1, 1], pools=[1, 0]) == [(0, 1)]


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_sorting_by_merging_is_sorting(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = (int(draw.integers(1, 30)), 3)
    target, received, deficit = (draw.integers(0, 4, shape) / 4.0 for _ in range(3))
    usable = (draw.random(shape) < 0.8).astype(np.int64)
    priority, order = np.empty(shape), np.empty(shape[::-1], np.int64)
    rank(target, received, deficit, usable, priority, order, np.empty(len(target), np.int64))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(received > 0, target / received, target * 1e9) * ((usable > 0) & (target > 0))
    value = np.nan_to_num(value)
    assert (priority == value).all()
    for k in range(3):
        assert order[k].tolist() == np.lexsort((-target[:, k], -deficit[:, k], -value[:, k])).tolist()


def test_between_rounds_idle_gpus_go_to_the_fastest_usable_type() -> None:
    out, taken = np.zeros((3, 2), np.int64), np.array([0, 1, 0])
    rates = np.array([[1.0, 2.0], [1.0, 1.0], [0.5, 0.0]])
    count = fill(np.arange(3), rates, np.array([1, 1, 1]), np.array([1, 1]), taken, out)
    assert out[:count].tolist() == [[0, 1], [2, 0]]


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_a_job_chosen_again_in_its_pool_is_not_stopped() -> None:
    """Two jobs, two GPUs, many rounds: leases are renewed, nobody is preempted."""
    work = jobs([(0, 1, 5000), (0, 1, 5000)])
    result = simulate(experiment(work, "gavel", "2x1:v100", costs="60"))
    assert result.preemptions.tolist() == [0, 0]
    assert result.finish_s.tolist() == [5000, 5000]


def test_three_jobs_on_two_gpus_take_turns_and_finish_alike() -> None:
    """Each gets 2/3 of the time: 3,600 s of work take about 5,400 s for everybody."""
    work = jobs([(0, 1, 3600)] * 3)
    result = simulate(experiment(work, "gavel", "2x1:v100"))
    assert result.finish_s.max() == pytest.approx(5400, abs=1)
    assert result.finish_s.min() > 4600
    assert 0 < result.preemptions.sum() <= 15


def test_received_time_converges_to_the_target() -> None:
    """Weights 1 and 3 on one GPU: after 40 rounds within 3 % of 1/4 and 3/4."""
    work = jobs([(0, 1, 1e6), (0, 1, 1e6)], weight=[1.0, 3.0])
    run = Simulation(experiment(work, "gavel", "1x1:v100"))
    run.advance(40 * 360.0)
    held = run.engine.view(40 * 360.0).attained_s
    assert (held / held.sum()).tolist() == pytest.approx([0.25, 0.75], abs=0.03)


def test_gpus_that_fall_idle_are_used_before_the_round_ends_unless_told_not_to() -> None:
    """Job 0 ends at 100 s; job 1 waits for its GPU until then, or until the round's end at 360 s."""
    work = jobs([(0, 1, 100), (50, 1, 100)])
    assert simulate(experiment(work, "gavel", "1x1:v100")).first_start_s.tolist() == [0, 100]
    late = ("gavel:round_end=latest_finish",)
    both = jobs([(0, 1, 100), (0, 1, 1000), (50, 1, 100)])
    assert simulate(experiment(both, "gavel", "2x1:v100")).first_start_s[2] == 100
    assert simulate(experiment(both, "gavel", "2x1:v100", compat=late)).first_start_s[2] == 360


def test_late_arrivals_wait_for_the_next_solve_and_block_their_slot() -> None:
    """A job comes right after the solve at 100 s: it starts at the first round 1,920 s later; none waits for time 0."""
    quirk = ("gavel:round_end=latest_finish", "gavel:reset_interval_s=1920", "gavel:late_arrivals=drop_at_placement")
    for begin_s, late_s in ((100, 2260), (0, 360)):
        work = jobs([(begin_s, 1, 1e4), (begin_s + 10, 1, 1000)])
        assert simulate(experiment(work, "gavel", "2x1:v100")).first_start_s[1] == begin_s + 10
        assert simulate(experiment(work, "gavel", "2x1:v100", compat=quirk)).first_start_s[1] == late_s


def test_agnostic_and_aware_disagree_about_who_gets_the_fast_gpu(tmp_path: Path) -> None:
    """One model gains ten times from a v100, the other nothing.

    Aware, the level L fills 2 L + 2 x 0.55 L = 2 GPUs: L = 0.645, two jobs end at 7200 / L = 11,160 s, and the others
    share the v100 (one of them at a tenth on the k80) until about 17,000 s.
    """
    profile = speeds(tmp_path, {"gains": {"v100": 1.0, "k80": 0.1}, "even": {"v100": 1.0, "k80": 1.0}})
    work = jobs([(0, 1, 7200)] * 4, models=["even", "gains"])
    ends = {
        aware: simulate(experiment(work, f"gavel:aware={aware}", "1x1:v100+1x1:k80", profile=profile)).finish_s.max()
        for aware in ("true", "false")
    }
    assert ends["true"] == pytest.approx(17_050, rel=0.03)
    assert ends["false"] > 1.2 * ends["true"]


# -- quirks ----------------------------------------------------------------------------------------------------------


def test_six_jobs_do_not_all_get_v100() -> None:
    """2 + 2 + 2 GPUs: the draw spreads over all types."""
    made = problem(np.ones((6, 3)), [2, 2, 2])
    nowhere = np.full(6, -1)
    firsts = {int(any_type(made, nowhere, np.random.default_rng(seed)).x[0].argmax()) for seed in range(20)}
    assert firsts == {0, 1, 2}
    assert any_type(made, nowhere, np.random.default_rng(0)).x.sum(axis=0).tolist() == [2, 2, 2]


def test_agnostic_fifo_leaves_running_jobs_alone_and_stops_at_the_first_that_does_not_fit() -> None:
    made = problem(np.ones((4, 2)), [1, 2], gangs=[1, 2, 2, 1])
    targets = any_type(made, np.array([0, -1, -1, -1]), np.random.default_rng(1))
    assert targets.x.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_compat_switches_on_what_its_table_says() -> None:
    assert parse_compat(["gavel"])["gavel"] == system("gavel").bundle
    both = parse_compat(["gavel", "gavel:fifo.type_choice=stale"])["gavel"]
    assert both == {**system("gavel").bundle, "fifo.type_choice": "stale"}
    quirks = quirks_of(parse_compat(["gavel:reset_interval_s=600"]))
    assert (quirks.reset_interval_s, quirks.drop_late, quirks.latest_finish) == (600.0, False, False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gavle", "gavel"),
        ("gavel:fifo.type=stale", "fifo.type_choice"),
        ("gavel:round_end=never", "round_end can only be latest_finish"),
        ("gavel:reset_interval_s=soon", "reset_interval_s"),
        ("gavel:reset_interval_s=-1", "reset_interval_s"),
    ],
)
def test_wrong_compat_is_one_clear_line(given: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        quirks_of(parse_compat([given]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gavel:objective=lass", "las"),
        ("gavel:inner=lifo", "fifo"),
        ("gavel:weights=[1,-2]", "above 0"),
        ("gavel:objektive=las", "objective"),
    ],
)
def test_wrong_parameters_are_one_clear_line(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        make_policy(given)
    assert "\n" not in str(caught.value)


def test_whole_steps_leave_the_rest_of_a_round_unused(tmp_path: Path) -> None:
    """One step takes 100 s, so a round of 360 s has three: the fourth begins in the next round, and so on."""
    profile = throughputs(tmp_path, {"slow": (0.01, 0.01, 0.01), "fine": (100.0, 100.0, 100.0)}, together=0.5)
    work = jobs([(0, 1, 1000), (0, 1, 1e4)], models=["slow", "fine"])
    plain, whole = (
        simulate(experiment(work, "gavel", "2x1:v100", profile=profile, compat=quirks)).finish_s[0]
        for quirks in ((), ("gavel",))
    )
    assert plain == 1000
    assert whole == pytest.approx(3 * 360 + 100)
