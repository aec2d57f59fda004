"""More than two jobs on one GPU: joined one by one, judged each time, and parted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.sim.driver import Simulation
from cotenant.testing.sharing import shared_run, sharing


def _policy(run: Simulation) -> Gandiva:
    assert isinstance(run.policy, Gandiva)
    return run.policy


def _run(table: np.ndarray, jobs: int, policy: str = "gandiva:switch_s=0", seconds: float = 5000.0) -> Simulation:
    busy = [0.1 + 0.01 * k for k in range(jobs)]
    return shared_run([(0.0, 1, seconds)] * jobs, sharing(table, busy=busy), "1x1", policy)


def test_four_jobs_share_a_gpu_where_each_newcomer_pays() -> None:
    """Each neighbour costs 1/9: two run at 0.9, three at 9/11, four at 3/4 of their speed, 3.0 in all.

    The third has to surpass (1.8 + 1) / 2 and the fourth (27/11 + 1) / 2.
    """
    run = _run(np.full((4, 4), 0.9), 4)
    run.advance(1000.0)
    packing = _policy(run).packing
    assert len({trial.host for trial in packing.trials.values()}) == 1
    assert sorted(trial.base for trial in packing.trials.values()) == pytest.approx([1.0, 1.4, (27 / 11 + 1) / 2])
    assert [trial.kept for trial in packing.trials.values()] == [True] * 3
    assert run.state.f[:, col.SPEED] == pytest.approx(np.full(4, 0.75))
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()
    assert packing.counts == {"packed": 3, "undone": 0}


def test_pairs_only_where_that_is_said() -> None:
    run = _run(np.full((4, 4), 0.9), 4, "gandiva:switch_s=0,group=2")
    run.advance(1000.0)
    hosts = [trial.host for trial in _policy(run).packing.trials.values()]
    assert len(hosts) == len(set(hosts)) == 2
    assert run.state.f[:, col.SPEED] == pytest.approx(np.full(4, 0.45))
    with pytest.raises(InputError, match="group=5 must be 2 to 4"):
        _run(np.full((4, 4), 0.9), 4, "gandiva:group=5")


def test_a_third_that_does_not_pay_parts_and_the_pair_stays() -> None:
    """The third leaves 0.29 + 0.29 + 0.18 = 0.76 of 1.4: it has turns of its own, half of the time."""
    table = np.full((3, 3), 0.9)
    table[2], table[:, 2] = 0.3, 0.3
    run = _run(table, 3)
    run.advance(900.0)
    packing = _policy(run).packing
    assert packing.counts["undone"] >= 1
    assert packing.paired == {0, 1}
    assert run.state.f[:3, col.SPEED] == pytest.approx([0.45, 0.45, 0.5])
    assert run.state.i[0, col.TURN] == run.state.i[1, col.TURN] != run.state.i[2, col.TURN]
    tried, spent = packing.counts["packed"], packing.trial_gpu_s
    run.advance(3000.0)
    assert (packing.counts["packed"], packing.trial_gpu_s) == (tried, spent), "who did not go together is left alone"
    assert run.outcome().summary["trial_gpu_s"] == spent > 0


def test_when_the_host_ends_the_others_stay_together() -> None:
    run = shared_run(
        [(0.0, 1, 400.0), *[(0.0, 1, 5000.0)] * 2], sharing(np.full((3, 3), 0.9), busy=[0.1, 0.2, 0.3]), "1x1",
        "gandiva:switch_s=0",
    )  # fmt: skip
    run.advance(4000.0)
    assert run.state.i[0, col.STATE] == col.FINISHED
    assert _policy(run).packing.paired == {1, 2}
    assert run.state.f[1:, col.SPEED] == pytest.approx([0.9, 0.9])


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_table_nobody_stays_in_a_group_that_makes_less_than_turns(seed: int) -> None:
    """Invariants are checked after every decision; at the end of every trial what is kept surpasses turns."""
    draw = np.random.default_rng(seed)
    table = draw.uniform(0.2, 1.0, (9, 9))
    rows = [(float(at), int(draw.choice([1, 1, 2])), float(draw.integers(200, 3000))) for at in range(0, 90, 10)]
    run = shared_run(rows, sharing(table, busy=draw.uniform(0.1, 1.0, 9).tolist()), "1x2", "gandiva")
    for until_s in range(100, 6000, 130):
        run.advance(float(until_s))
        view, packing = run.engine.view(float(until_s)), _policy(run).packing
        for host in {trial.host for trial in packing.trials.values()}:
            group = packing.members(host)
            here = all(run.state.i[row, col.STATE] == col.RUNNING for row in group)
            if here and all(packing.trials[guest].kept for guest in group[1:]):
                assert packing.progress(view, group) > 1.0
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()
