"""Allocators on one round: the invariants on random mixes, golden cases by hand, optimum against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from allocation_kit import DONOR, EXACT, GREEDY, HUNGRY, SHARE, check_packing, matrices, with_gangs
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.allocation import ALLOCATORS, Share, demands, make_allocator, released_demands
from cotenant.allocation.once import pack_once, placed, throughput
from cotenant.allocation.opt import best_shares
from cotenant.allocation.tables import BEGIN, COUNT, NODE, TAKEN
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity

NEVER_SKIP = [name for name, made in ALLOCATORS.items() if not made.skips]
TUNES = ("synergy-tune", "synergy-tune:order=policy,fit=first", "synergy-tune:fit=placement")


def one_gpu(*kinds: int) -> np.ndarray:
    return np.array(kinds, np.int64)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nobody_below_its_share_and_nothing_over_capacity(data: st.DataObject) -> None:
    servers = data.draw(st.integers(1, 4))
    gangs, asked = with_gangs()
    kinds: list[int] = []
    room = 8 * servers
    for kind in data.draw(st.lists(st.integers(0, len(gangs) - 1), max_size=24)):
        if gangs[kind] <= room:
            kinds.append(kind)
            room -= int(gangs[kind])
    for name in {*NEVER_SKIP, *TUNES}:
        packing = pack_once(make_allocator(name), np.array(kinds, np.int64), gangs, asked, SHARE, servers)
        check_packing(packing, all_placed=True)
    for name in ("synergy-greedy", "drf", "tetris", "fixed"):
        check_packing(
            pack_once(make_allocator(name), np.array(kinds, np.int64), gangs, asked, SHARE, servers), all_placed=False
        )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_matrix_keeps_the_floor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    share = Share(float(rng.integers(1, 9)), float(rng.integers(4, 64)), float(rng.integers(50, 600)))
    cpus, mems = (
        np.sort(rng.choice(np.arange(1, 30), 5, False)).astype(float),
        np.sort(rng.choice(np.arange(10, 300), 4, False)).astype(float),
    )
    table = np.sort(np.sort(rng.random((6, 5, 4)) + 0.01, axis=1), axis=2)
    gangs = rng.integers(1, 2 * int(share.gpus) + 1, 6)
    asked = demands(Sensitivity(cpus, mems, table, np.full((6, 3), np.nan), np.ones(6)), gangs, share)
    kinds, servers = [], int(rng.integers(1, 5))
    room = servers * int(share.gpus)
    for kind in rng.integers(0, 6, 40).tolist():
        if gangs[kind] <= room:
            kinds.append(kind)
            room -= int(gangs[kind])
    for name in (
        "synergy-tune",
        "synergy-tune:order=policy,fit=first",
        "synergy-knapsack",
        "synergy-opt",
        "proportional",
    ):
        check_packing(
            pack_once(make_allocator(name), np.array(kinds, np.int64), gangs, asked, share, servers), all_placed=True
        )


def test_best_case_demand_is_the_least_that_saturates() -> None:
    _, asked = with_gangs((1,))
    assert asked.want.tolist() == [[9, 60, 2.5], [6, 120, 2.0], [1, 20, 1.0], [3, 60, 1.0]]
    assert asked.floor[:, :2].tolist() == [[3, 60]] * 4


def test_a_gang_asks_for_no_more_than_its_server() -> None:
    _, asked = with_gangs((4, 16))
    assert asked.want[HUNGRY].tolist() == [6, 60, 2.0]
    assert asked.want[4 + HUNGRY].tolist() == [3, 60, 1.0]


def test_tune_gives_donors_cores_to_the_hungry() -> None:
    gangs, asked = with_gangs((1,))
    packing = pack_once(make_allocator("synergy-tune"), one_gpu(HUNGRY, *[DONOR] * 7), gangs, asked, SHARE, 1)
    assert packing.got[0].tolist() == [9, 60, 2.5]
    assert packing.got[1:, 0].tolist() == [1] * 7


def test_tune_switches_one_back_when_a_newcomer_needs_its_share() -> None:
    gangs, asked = with_gangs((1,))
    kinds = one_gpu(HUNGRY, HUNGRY, DONOR, DONOR, EXACT, EXACT, EXACT, DONOR)
    packing = pack_once(make_allocator("synergy-tune:order=policy"), kinds, gangs, asked, SHARE, 1)
    # 9 + 9 + 1 + 1 leave 4 cores: one exact job fits, the next takes back from the first hungry one
    assert packing.got[:, 0].tolist() == [3, 9, 1, 1, 3, 3, 3, 1]


def test_greedy_skips_what_fits_nowhere() -> None:
    gangs, asked = with_gangs((1,))
    packing = pack_once(make_allocator("synergy-greedy"), one_gpu(*[HUNGRY] * 4, DONOR), gangs, asked, SHARE, 1)
    assert packing.at[:, COUNT].tolist() == [1, 1, 0, 0, 1]


def test_a_split_gang_has_equal_shares_on_every_server() -> None:
    gangs, asked = with_gangs((12,))
    packing = pack_once(make_allocator("synergy-tune"), one_gpu(HUNGRY), gangs, asked, SHARE, 2)
    rows = packing.slices[packing.at[0, BEGIN] : packing.at[0, BEGIN] + packing.at[0, COUNT]]
    assert sorted(rows[:, TAKEN].tolist()) == [4, 8]
    assert packing.cap[rows[:, NODE], 1] - packing.free[rows[:, NODE], 1] == pytest.approx(3.0 * rows[:, TAKEN])


def test_a_gang_is_not_torn_apart_for_cores() -> None:
    gangs, asked = with_gangs((1, 4))
    kinds = np.array([HUNGRY, HUNGRY, 4 + HUNGRY], np.int64)
    packing = pack_once(make_allocator("synergy-tune:order=policy"), kinds, gangs, asked, SHARE, 1)
    assert packing.at[2, COUNT] == 1
    assert packing.got[:, 2].min() >= 1.0


def test_released_rules_for_gangs() -> None:
    wanted = np.array([[12.0, 125.0, 2.94], [12.0, 125.0, 2.94], [12.0, 125.0, 2.94]])
    table = np.ones((3, 2, 2))
    sens = Sensitivity(np.array([3.0, 12.0]), np.array([62.5, 125.0]), table, wanted, np.ones(3))
    asked = released_demands(sens, np.array([1, 4, 16]), Share(8, 24, 500))
    assert asked.want[0].tolist() == [12, 125, 2.94]
    assert asked.want[1].tolist() == [6, 125, pytest.approx(1 + 1.94 * (24 - 12) / (48 - 12))]
    assert asked.want[2].tolist() == [3, 62.5, 1]


@pytest.mark.parametrize("seed", range(8))
def test_opt_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gangs, asked = with_gangs((1, 2))
    kind = rng.integers(0, len(gangs), 5)
    cpus, mem = 3.0 * gangs[kind].sum() + 2, 60.0 * gangs[kind].sum() + 30
    best = 0.0
    for choice in itertools.product(*(range(int(asked.count[k])) for k in kind)):
        points = asked.points[kind, list(choice)]
        if (gangs[kind] * points[:, 0]).sum() <= cpus + 1e-9 and (gangs[kind] * points[:, 1]).sum() <= mem + 1e-9:
            best = max(best, float((points[:, 2] / asked.floor[kind, 2]).sum()))
    found = best_shares(np.bincount(kind, minlength=len(gangs)), gangs, asked, cpus, mem, 10.0)
    assert found.value == pytest.approx(best)


@pytest.mark.parametrize("seed", range(6))
def test_order_of_allocators_against_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gangs, asked = with_gangs((1,))
    kind = rng.choice(4, 32, p=[0.2, 0.15, 0.5, 0.15])
    best = best_shares(np.bincount(kind, minlength=4), gangs, asked, 4 * 24.0, 4 * 480.0, 10.0).value
    reached = {}
    for name in ("proportional", "synergy-tune", "synergy-knapsack", "synergy-opt"):
        packing = pack_once(make_allocator(name), kind, gangs, asked, SHARE, 4)
        reached[name] = throughput(packing) / best
        assert placed(packing) == 32
    assert reached["proportional"] - 1e-9 <= reached["synergy-tune"] <= 1 + 1e-9
    assert 0.93 <= reached["synergy-knapsack"] <= 1 + 1e-9
    assert reached["synergy-opt"] <= 1 + 1e-9


def test_knapsack_is_exact_on_one_server() -> None:
    gangs, asked = with_gangs((1, 2))
    for seed in range(4):
        kind = np.random.default_rng(seed).integers(0, len(gangs), 4)
        packing = pack_once(make_allocator("synergy-knapsack"), kind, gangs, asked, SHARE, 1)
        best = best_shares(np.bincount(kind, minlength=len(gangs)), gangs, asked, 24.0, 480.0, 10.0).value
        assert throughput(packing) == pytest.approx(best)


def test_opt_out_of_time_still_packs_everybody() -> None:
    gangs, asked = with_gangs()
    kind = np.array([0, 1, 2, 3, 4, 8], np.int64)
    check_packing(pack_once(make_allocator("synergy-opt:budget=1e-9"), kind, gangs, asked, SHARE, 3), all_placed=True)


def test_drf_serves_the_tenant_that_holds_least() -> None:
    gangs, asked = with_gangs((1,))
    kind, tenant = one_gpu(*[HUNGRY] * 3, EXACT), np.array([0, 0, 0, 1])
    packing = pack_once(make_allocator("drf"), kind, gangs, asked, SHARE, 1, tenant=tenant)
    assert packing.at[:, COUNT].tolist() == [1, 1, 0, 1]


def test_tetris_takes_small_remaining_work_first() -> None:
    gangs, asked = with_gangs((1,))
    packing = pack_once(
        make_allocator("tetris"), one_gpu(*[GREEDY] * 5), gangs, asked, SHARE, 1, left_s=np.array([5.0, 4, 3, 2, 1])
    )
    assert packing.at[:, COUNT].tolist() == [0, 1, 1, 1, 1]


def test_fixed_gives_what_was_asked() -> None:
    gangs, asked = with_gangs((1,))
    packing = pack_once(
        make_allocator("fixed"),
        one_gpu(HUNGRY, DONOR),
        gangs,
        asked,
        SHARE,
        1,
        asked=np.array([[5.0, 30.0], [np.nan, np.nan]]),
    )
    assert packing.got[:, :2].tolist() == [[5, 30], [3, 60]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("synergy-tun", "synergy-tune"),
        ("synergy-tune:fit=worst", "fit"),
        ("synergy-tune:order=random", "order"),
        ("synergy-tune:round=-1", "round"),
        ("synergy-tune:profiling=psychic", "profiling"),
        ("proportional:order=paper", "order"),
    ],
)
def test_bad_allocators_are_refused_in_one_line(text: str, says: str) -> None:
    gangs, asked = with_gangs((1,))
    with pytest.raises(InputError, match=says) as caught:
        pack_once(make_allocator(text), one_gpu(0), gangs, asked, SHARE, 1)
    assert "\n" not in str(caught.value)


def test_sensitivity_is_linear_between_points_and_falls_below_the_first() -> None:
    sens = matrices()
    kind = np.array([HUNGRY] * 4)
    got = sens.speed(kind, np.array([0.5, 3.0, 4.5, 30.0]), np.array([120.0, 60.0, 60.0, 500.0]))
    assert got.tolist() == pytest.approx([0.17, 1.0, 1.5, 2.5])
    assert sens.speed(np.array([HUNGRY]), np.array([9.0]), np.array([40.0]))[0] == pytest.approx((0.2 + 2.5) / 2)
