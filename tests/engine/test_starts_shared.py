"""Plans that only start jobs beside others: judged by the GPUs that they touch, as the whole plan would be."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.engine.check import check_plan, check_starts, only_starts
from cotenant.engine.events import arrive
from cotenant.sim.driver import Simulation
from cotenant.testing.sharing import shared_run, sharing


def _two_wait_beside_one() -> Simulation:
    """Two GPUs of 20 GiB; row 0 runs on the first with 12 GiB, the others (6 and 12 GiB) have just come."""
    table = sharing(np.full((3, 3), 0.9), memory_gib=[12, 6, 12], gpu_gib=20)
    run = shared_run([(0.0, 1, 900.0), (1.0, 1, 900.0), (1.0, 1, 900.0)], table, "1x2", "horus")
    run.advance(0.5)
    for row in (1, 2):
        arrive(run.state, run.engine.rule, row, 1.0)
        run.state.x[col.NEXT_ARRIVAL] += 1
    return run


@pytest.mark.parametrize(
    ("places", "wrong"),
    [
        ({1: ((0, 1, 0b01),)}, ""),
        ({1: ((0, 1, 0b01),), 2: ((0, 1, 0b10),)}, ""),
        ({1: ((0, 1),), 2: ((0, 1, 0b01),)}, "GiB on GPU 0"),
        ({2: ((0, 1, 0b01),)}, "GiB on GPU 0"),
        ({1: ((0, 1),), 2: ((0, 1),)}, "unused GPUs"),
        ({1: ((0, 2, 0b11),)}, "broken gang"),
        ({1: ((3, 1, 0b01),)}, "not there"),
    ],
)
def test_judged_as_the_whole_plan_is(places: dict[int, tuple[tuple[int, ...], ...]], wrong: str) -> None:
    run = _two_wait_beside_one()
    plan = Plan(places, {row: Terms() for row in places}, keep=True)  # type: ignore[arg-type]
    view = run.engine.view(1.0)
    assert only_starts(run.state, plan, view)
    if wrong:
        for check in (check_starts, check_plan):
            with pytest.raises(InputError, match=wrong):
                check(run.state, plan, view, "mine")
    else:
        starts = check_starts(run.state, plan, view, "mine")
        whole = check_plan(run.state, plan, view, "mine")
        assert starts == {row: place for row, place in whole.items() if row != 0}


def test_other_shares_of_those_who_run_are_no_obstacle_but_other_memory_is() -> None:
    run = _two_wait_beside_one()
    start, view = {1: ((0, 1, 0b10),)}, run.engine.view(1.0)
    assert only_starts(run.state, Plan(start, {0: Terms(share=0.5)}, keep=True), view)
    for terms in (Terms(cap=0.5), Terms(turn=1), Terms(opportunistic=True)):
        assert not only_starts(run.state, Plan(start, {0: terms}, keep=True), view)
    assert not only_starts(run.state, Plan(start, stop=frozenset({0}), keep=True), view)
    assert not only_starts(run.state, Plan({0: ((0, 1, 0b10),)}, keep=True), view)
