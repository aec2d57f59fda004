"""The rule of tenants, over random trees: what holds after every filling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_trees import Case, after, cases, held, in_use, runs

from cotenant.core.tenants import Tenant, Tree
from cotenant.tenancy.asked import (
    I_BORROWED,
    I_GUARANTEED,
    I_LEFT,
    I_REFUSED,
    KEPT_ASIDE,
    N_BORROWED,
    N_TAKEN,
    N_USE,
    NO_GPUS,
    NOT_REFUSED,
    OVER_LIMIT,
    S_ENTITLED,
    W_AGED,
    W_COUNT,
    W_GPUS,
    W_POOLS,
    W_ROW,
    Asked,
    Claims,
)
from cotenant.tenancy.tree_tables import tree_tables

often = settings(max_examples=150, deadline=None)


def case_of(
    tree: Tree, idle: int, holds: dict[str, int] | None = None, waits: tuple[tuple[str, int, int], ...] = ()
) -> Case:
    """One pool; who holds how many GPUs; (tenant, GPUs of a gang, gangs) that wait."""
    names = tuple(dict.fromkeys([*(tenant.name for tenant in tree.tenants), *(name for name, _, _ in waits)]))
    tables = tree_tables(tree, names)
    leaf = {name: int(tables.leaf[at, 0]) for at, name in enumerate(names)}
    count = len(tables.rows.parent)
    running = np.zeros((count, 2), np.int64)
    for name, gpus in (holds or {}).items():
        running[leaf[name], 0] = gpus
    waiting = np.array([[leaf[name], gpus, gangs, 1, 0] for name, gpus, gangs in waits], np.int64).reshape(-1, 5)
    hosts = np.zeros((len(waits), 2))
    return Case(
        tree, names, tables, Asked(np.array([idle]), running, np.zeros((count, 2)), np.zeros(count), waiting, hosts)
    )


def limits(case: Case, asked: Asked | None = None) -> dict[str, int]:
    return {name: int(limit) for name, limit in zip(case.names, case.filled(asked).limit, strict=True)}


@often
@given(cases())
def test_ceilings_loans_and_sums_hold(case: Case) -> None:
    claims, rows, asked = case.filled(), case.tables.rows, case.asked
    use = in_use(case, claims)
    assert use == claims.table[:, N_USE].tolist()
    assert all(gpus <= most for gpus, most in zip(use, rows.most.tolist(), strict=True))
    assert (claims.keep >= 0).all()
    assert (claims.keep <= asked.running).all()
    assert (claims.free >= 0).all()
    capacity = int(asked.idle.sum() + asked.running.sum())
    assert int(claims.free.sum()) + use[0] == capacity
    assert int(claims.limit.sum()) == use[0] <= capacity
    if claims.table[0, N_BORROWED]:
        assert use[0] + held(case, use)[0] <= capacity


@often
@given(cases())
def test_nobody_falls_below_its_guarantee(case: Case) -> None:
    claims, rows, ran = case.filled(), case.tables.rows, runs(case)
    assume((ran <= rows.most).all())  # else a ceiling takes it, whoever it is guaranteed to
    for row, use in enumerate(in_use(case, claims)):
        assert use >= min(ran[row], rows.guaranteed[row])


@often
@given(cases(pools=1))
def test_guaranteed_demand_is_within_the_limit(case: Case) -> None:
    claims, rows = case.filled(), case.tables.rows
    use = in_use(case, claims)
    for line, said in zip(case.asked.waiting, claims.items, strict=True):
        if said[I_LEFT]:
            assert use[line[W_ROW]] + line[W_GPUS] > rows.guaranteed[line[W_ROW]]


@often
@given(cases())
def test_no_gang_waits_beside_gpus_that_it_may_take(case: Case) -> None:
    claims, rows = case.filled(), case.tables.rows
    use = in_use(case, claims)
    capacity = int(case.asked.idle.sum() + case.asked.running.sum())
    for line, said in zip(case.asked.waiting, claims.items, strict=True):
        free = any(line[W_POOLS] >> pool & 1 and gpus >= line[W_GPUS] for pool, gpus in enumerate(claims.free))
        if said[I_LEFT] and free:
            more, row = list(use), int(line[W_ROW])
            while row >= 0:
                more[row] += int(line[W_GPUS])
                row = int(rows.parent[row])
            most = [capacity, *rows.most[1:].tolist()]
            row, below, over = int(line[W_ROW]), held(case, more), False
            while row >= 0:
                over = over or more[row] + below[row] > most[row]
                row = int(rows.parent[row])
            assert over


@often
@given(cases(pools=1))
def test_what_was_decided_stays(case: Case) -> None:
    """Once all claims run, the same demand takes nothing back and claims nothing new: there is no cycle."""
    assume((runs(case) <= case.tables.rows.most).all())
    asked = after(case, case.filled())
    again = case.filled(asked)
    assert again.table[0, N_TAKEN] == 0
    assert (again.keep == asked.running).all()


@often
@given(cases())
def test_order_of_input_does_not_matter(case: Case) -> None:
    asked = case.asked
    order = np.argsort(asked.waiting[:, W_ROW], kind="stable")  # tenants in another order, each one's own order kept
    mixed = asked._replace(waiting=asked.waiting[order], waiting_host=asked.waiting_host[order])
    assert limits(case) == limits(case, mixed) == limits(case)


@settings(max_examples=25, deadline=None)
@given(cases(pools=1, guarantees=False, bounds=False), st.integers(0, 2**31))
def test_shares_converge_to_weights(case: Case, seed: int) -> None:
    """Everybody wants everything, jobs of one GPU end at random: entitlements are reached level by level."""
    leaves, rows = case.leaves, case.tables.rows
    asked = case.asked
    waiting = np.array([[leaf, 1, 10_000, 1, 0] for leaf in leaves], np.int64)
    running = np.zeros_like(asked.running)
    rng, capacity = np.random.default_rng(seed), 24
    for _ in range(12):
        idle = capacity - running.sum()
        asked = asked._replace(
            idle=np.array([idle]), running=running, waiting=waiting, waiting_host=np.zeros((len(waiting), 2))
        )
        claims = case.filled(asked)
        held_now = claims.limit[rows.tenant[leaves]]
        running = np.zeros_like(running)
        running[leaves, 0] = rng.binomial(held_now, 0.6)
    use = claims.table[:, N_USE]
    for row in range(len(use)):
        children = range(rows.first[row], rows.first[row + 1])
        weights = sum(rows.weight[child] for child in children)
        for child in children:
            assert abs(use[child] - use[row] * rows.weight[child] / weights) < max(2.0, len(children))


def test_past_use_makes_up_for_it() -> None:
    case = case_of(Tree((Tenant("a"), Tenant("b"))), 8, waits=(("a", 1, 20), ("b", 1, 20)))
    past = np.array([0.0, 6.0, 0.0])
    assert limits(case) == {"a": 4, "b": 4}
    assert limits(case, case.asked._replace(past=past)) == {"a": 1, "b": 7}


def test_unspent_guarantee_of_a_parent_goes_to_its_children_first() -> None:
    tree = Tree((Tenant("r", guaranteed=6), Tenant("v", "r", 2), Tenant("n", "r", 2), Tenant("p", guaranteed=2)))
    asks = (("v", 1, 20), ("p", 1, 20))
    assert limits(case_of(tree, 8, waits=asks)) == {"r": 0, "v": 6, "n": 0, "p": 2}
    taken = case_of(tree, 0, {"p": 8}, asks).filled()
    assert taken.table[0, N_TAKEN] == 6
    own = limits(case_of(tree, 8, waits=(("n", 1, 20), *asks)))
    assert (own["n"], own["v"], own["p"]) == (3, 3, 2)


def test_siblings_give_back_to_each_other_only_what_is_beyond_their_guarantee() -> None:
    tree = Tree((Tenant("r", guaranteed=8), Tenant("v", "r", 4), Tenant("n", "r", 4)))
    assert limits(case_of(tree, 0, {"v": 8}, (("n", 2, 4),))) == {"r": 0, "v": 4, "n": 4}
    assert limits(case_of(tree, 0, {"v": 4, "n": 4}, (("n", 1, 4),))) == {"r": 0, "v": 4, "n": 4}


def test_borrowers_do_not_evict_borrowers() -> None:
    tree = Tree((Tenant("a"), Tenant("b", weight=9.0)))
    assert limits(case_of(tree, 0, {"a": 8}, (("b", 1, 8),))) == {"a": 8, "b": 0}


def test_who_does_not_reclaim_waits() -> None:
    tree = Tree((Tenant("a"), Tenant("b", guaranteed=8, reclaims=False)))
    assert limits(case_of(tree, 2, {"a": 6}, (("b", 1, 8),))) == {"a": 6, "b": 2}


def test_what_is_not_lent_stays_idle() -> None:
    tree = Tree((Tenant("a", guaranteed=6, lend=2), Tenant("b")))
    case = case_of(tree, 8, waits=(("b", 1, 8),))
    claims = case.filled()
    assert claims.limit.tolist() == [0, 4]
    assert claims.items[0, I_REFUSED] == 0  # some of its gangs have GPUs
    assert case_of(tree, 4, {"b": 4}, (("b", 1, 8),)).filled().items[0, I_REFUSED] == KEPT_ASIDE


def test_a_new_ceiling_takes_effect_at_once() -> None:
    tree = Tree((Tenant("r", ceiling=4), Tenant("v", "r", 2), Tenant("n", "r")))
    assert limits(case_of(tree, 0, {"v": 4, "n": 4})) == {"r": 0, "v": 4, "n": 0}


def test_a_guarantee_below_a_full_ceiling_is_taken_inside() -> None:
    """Somebody under the same ceiling gives way, though there are idle GPUs elsewhere."""
    tree = Tree((Tenant("r", ceiling=4), Tenant("v", "r", 2), Tenant("n", "r")))
    assert limits(case_of(tree, 4, {"n": 4}, (("v", 2, 1),))) == {"r": 0, "v": 2, "n": 2}


def test_cores_and_memory_are_ceilings() -> None:
    tree = Tree((Tenant("a", cpus=20.0), Tenant("b")))
    case = case_of(tree, 8, waits=(("a", 1, 8), ("b", 1, 2)))
    hosts = np.array([[8.0, 1.0], [8.0, 1.0]])
    claims = case.filled(case.asked._replace(waiting_host=hosts))
    assert claims.limit.tolist() == [2, 2]


def test_an_aged_gang_keeps_borrowers_off() -> None:
    tree = Tree((Tenant("a"), Tenant("b"), Tenant("c", guaranteed=1)))
    case = case_of(tree, 3, {"a": 5}, (("a", 4, 1), ("b", 1, 3), ("c", 1, 1)))
    assert limits(case) == {"a": 5, "b": 2, "c": 1}
    aged = case.asked.waiting.copy()
    aged[0, W_AGED] = 1
    claims = case.filled(case.asked._replace(waiting=aged))
    assert claims.limit.tolist() == [5, 0, 1]  # guaranteed claims still may
    assert claims.reserved.tolist() == [0]
    assert claims.items[:, I_REFUSED].tolist() == [NO_GPUS, NOT_REFUSED, NOT_REFUSED]


def test_refusals_say_why() -> None:
    tree = Tree((Tenant("a", ceiling=2), Tenant("b")))
    claims = case_of(tree, 6, {"a": 2}, (("a", 1, 1), ("b", 8, 1), ("b", 4, 1))).filled()
    assert claims.items[:, I_REFUSED].tolist() == [OVER_LIMIT, NO_GPUS, 0]
    assert claims.items[:, I_BORROWED].tolist() == [0, 0, 1]
    assert claims.next[0] == 1


def test_guaranteed_gpus_of_a_type_come_from_its_pool() -> None:
    """Borrowers leave the pool that the claim needs, though another one is idle."""
    tree = Tree((Tenant("a", guaranteed=4, guaranteed_by_type=(("h200", 2),)), Tenant("b")))
    tables = tree_tables(tree, ("a", "b"), ("v100", "h200"))
    assert tables.leaf.tolist()[0][0] == tables.leaf.tolist()[0][1] != tables.leaf.tolist()[0][2]
    count = len(tables.rows.parent)
    running = np.zeros((count, 3), np.int64)
    running[tables.leaf[1, 0], 1] = 4
    waiting = np.array([[tables.leaf[0, 2], 2, 1, 0b10, 0]], np.int64)
    asked = Asked(np.array([4, 0]), running, np.zeros((count, 2)), np.zeros(count), waiting, np.zeros((1, 2)))
    claims = Case(tree, ("a", "b"), tables, asked).filled()
    assert claims.keep[tables.leaf[1, 0]].tolist() == [0, 2, 0]
    assert claims.items[0, I_GUARANTEED] == 1
    assert claims.limit.tolist() == [2, 2]


def test_entitlement_is_the_guarantee_or_the_part_of_the_weight() -> None:
    tree = Tree((Tenant("r", guaranteed=64, weight=2.0), Tenant("v", "r", 48), Tenant("n", "r"), Tenant("p")))
    case = case_of(tree, 120)
    rows = case.tables.row_of
    entitled = case.filled().shares[:, S_ENTITLED]
    assert [entitled[rows[name]] for name in "rvnp"] == pytest.approx([80, 48, 40, 40])


def test_what_cannot_be_stopped_is_not_taken_back() -> None:
    tree = Tree((Tenant("a", guaranteed=8), Tenant("b")))
    case = case_of(tree, 0, {"b": 8}, (("a", 1, 8),))
    pinned = case.asked.running[:, ::-1].copy()
    claims: Claims = case.filled(case.asked._replace(running=pinned))
    assert claims.limit.tolist() == [0, 8]
    assert case.asked.waiting[0, W_COUNT] == claims.items[0, I_LEFT]
