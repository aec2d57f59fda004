from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import random_case

from cotenant.core.tenants import Tenant, Tree
from cotenant.tenancy.past import decayed
from cotenant.tenancy.standing import Loan, arithmetic, loans, standings

TREE = Tree(
    (
        Tenant("research", guaranteed=16),
        Tenant("vision", "research", 8),
        Tenant("nlp", "research", 4),
        Tenant("product", guaranteed=8, ceiling=12),
    ),
    half_life_s=3600.0,
)


def test_loans_are_nearest_first() -> None:
    by_vision = loans(TREE, {"vision": 15, "nlp": 2, "product": 8})
    assert by_vision == [Loan("nlp", "vision", 2), Loan("research", "vision", 4), Loan("", "vision", 1)]
    assert loans(TREE, {"product": 12, "vision": 8, "research": 4, "x": 3}) == [
        Loan("nlp", "product", 4),
        Loan("", "x", 3),
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_loans_add_up(seed: int) -> None:
    case = random_case(seed)
    held = case.asked.running.sum(axis=1)
    used = {name: int(held[case.tables.leaf[at, 0]]) for at, name in enumerate(case.names)}
    made = loans(case.tree, used)
    assert all(loan.gpus > 0 for loan in made)
    rows = {one.name: one for one in standings(case.tree, 40, used, {}, {})}
    for name, one in rows.items():
        assert one.used - one.borrowed + one.lent <= one.guaranteed
        if not case.tree.children(name):
            assert one.borrowed == max(0, one.used - one.guaranteed)
            assert one.lent <= max(0, one.guaranteed - one.used)


def test_standings_and_their_sum_in_words() -> None:
    used, waiting = {"vision": 12, "product": 8}, {"vision": 3, "nlp": 2, "product": 1}
    limits = {"vision": 12, "nlp": 2, "product": 8}
    rows = standings(TREE, 32, used, waiting, limits, {"vision": 6.0})
    assert [(row.name, row.depth) for row in rows] == [("research", 0), ("vision", 1), ("nlp", 1), ("product", 0)]
    research, vision, nlp, product = rows
    assert (research.used, research.borrowed, research.lent, research.waiting, research.limit) == (12, 0, 0, 5, 14)
    assert (vision.borrowed, nlp.lent) == (4, 4)
    assert (vision.entitled, vision.share, vision.ratio) == (8.0, 9.0, pytest.approx(1.125))
    assert product.entitled == 16.0
    assert arithmetic(vision, rows, loans(TREE, used)) == (
        "vision holds 12 of 8 guaranteed GPUs, 4 borrowed (4 from nlp). "
        "Share over entitlement: (12 now + 6.0 past) / 2 / 8.0 (its guarantee) = 1.12. "
        "It asks for 3 more; nlp (0.00) borrows before it; it may hold 12 now."
    )
    assert "It asks for 2 more, 2 of them guaranteed; it may hold 2 now." in arithmetic(nlp, rows)
    assert "is the next to borrow" in arithmetic(product, rows)


def test_past_use_does_not_depend_on_steps() -> None:
    once = decayed(4.0, 8.0, 7200.0, 3600.0)
    assert once == pytest.approx(7.0)
    assert decayed(decayed(4.0, 8.0, 1000.0, 3600.0), 8.0, 6200.0, 3600.0) == pytest.approx(once)
    assert decayed(4.0, 8.0, 7200.0, math.inf) == 0.0
