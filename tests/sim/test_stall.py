"""A run in which jobs stop each other before they have restored ends with one clear line."""

from __future__ import annotations

import pytest

import effort
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.sim.driver import Experiment, simulate
from cotenant.testing.policy import jobs, random_workload

TWO = jobs((0, 1, 100), (0, 1, 100))


def play(work, policy: str, costs: str, **more):
    return simulate(Experiment(work, Cluster.parse("1x1"), policy, placement="count", costs=costs, **more))


@pytest.mark.parametrize("check_invariants", effort.first(1, [False, True]))
def test_rounds_below_the_cost_of_restoring(check_invariants: bool) -> None:
    with pytest.raises(InputError) as ended:
        play(TWO, "las:round=5,weigh=false", "10", check_invariants=check_invariants)
    line = str(ended.value)
    assert "\n" not in line
    for word in ("job '", "before it has restored (10 s)", "'las:round=5,weigh=false'", "--round", "--costs"):
        assert word in line


@pytest.mark.slow
def test_many_jobs_stall_too() -> None:
    work = random_workload(3, 16, 8)
    with pytest.raises(InputError, match="no job gets on"):
        simulate(Experiment(work, Cluster.parse("2x4"), "las:weigh=false", round_s=20.0, costs="60", compiled=False))


@pytest.mark.parametrize(("policy", "costs"), [("las:round=0.05", "none"), ("las:round=11", "10")])
def test_short_rounds_in_which_jobs_get_on_are_no_stall(policy: str, costs: str) -> None:
    assert play(TWO, policy, costs).finished.all()


def test_a_long_restore_that_nobody_interrupts_is_no_stall() -> None:
    """Row 1 passes row 0 at 50 s; then row 0 restores for longer than thousands of rounds take."""
    work = jobs((0, 1, 60), (50, 1, 1))
    result = play(work, "las:round=0.5,weigh=false", "4000")
    assert result.finished.all()
    assert result.preemptions.sum() >= 1
