"""Where SJF-BSBF puts jobs: empty GPUs first, then the hosts that gain most, memory by smaller sub-batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.beliefs.company import SharedSpeeds
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.together import CURVE, Together
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies.bsbf.judging import cost, last_end
from cotenant.policies.bsbf.pair_test import pays, shared_mean, waiting_mean
from cotenant.policies.bsbf.policy import SjfBsbf
from cotenant.policies.bsbf.tables import lay_scene, lay_scratch
from cotenant.sim.driver import Experiment, Simulation


def _run(
    rows: list[tuple[float, int, float]], together: Together, cluster: str, policy: str = "sjf-bsbf"
) -> Simulation:
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    names = tuple(f"m{k}" for k in range(len(rows)))
    work: Workload = make_workload(
        "rows",
        submit.astype(float),
        gpus.astype(np.int64),
        duration.astype(float),
        model=Codes(np.arange(len(rows)), names),
    )
    run = Simulation(
        Experiment(work, Cluster.parse(cluster), policy, costs="none", compiled=False, check_invariants=True)
    )
    run.state.f[:, col.GPU_GIB] = together.memory_gib[run.state.i[:, col.SPEED_ROW], 0]
    run.state.gpu_gib[:] = together.gpu_gib
    run.engine.facts = replace(run.engine.facts, together=together)
    run.engine.rates = SharedSpeeds(together)
    return run


def _together(slowdown: np.ndarray, memory: list[float] | None = None, gpu_gib: float = np.inf) -> Together:
    count = len(slowdown)
    pace = np.zeros((count, 3))
    pace[:] = (1.0, 0.8, 0.6)
    need = np.zeros((count, 3)) if memory is None else np.outer(memory, [1.0, 0.5, 0.25])
    return Together(
        (1 / slowdown)[:, :, None], pace, need, np.ones(count), np.array([gpu_gib]), np.ones((count, len(CURVE)))
    )


def test_host_choice() -> None:
    """One empty GPU, hosts P (2 GPUs, mean 220), Q (1 GPU, mean 200), R refuses: the empty one, Q's, one of P's."""
    slow = np.full((4, 4), 1.2)
    slow[3, 2] = slow[2, 3] = 9.0
    rows = [(0.0, 2, 300.0), (0.0, 1, 260.0), (0.0, 1, 110.0), (1.0, 3, 100.0)]
    run = _run(rows, _together(slow), "1x5")
    run.advance(1.0)
    users = run.state.gpu[:, :2].tolist()
    job = [users.index(pair) for pair in users if 3 in pair]
    assert run.state.i[3, col.STATE] == col.RUNNING
    hosts = [pair[0] for pair in users if 3 in pair]
    assert sorted(hosts) == [0, 1, 3], users
    assert len(job) == 3


def test_more_gpus_than_willing_hosts() -> None:
    slow = np.full((4, 4), 1.2)
    slow[3, 2] = slow[2, 3] = 9.0
    rows = [(0.0, 2, 300.0), (0.0, 1, 260.0), (0.0, 1, 110.0), (1.0, 5, 100.0)]
    run = _run(rows, _together(slow), "1x5")
    run.advance(1.0)
    assert run.state.i[3, col.STATE] == col.WAITING
    assert isinstance(run.policy, SjfBsbf)
    assert "beside row " in run.engine.answers()(3)


def test_never_shares_when_gpus_are_free() -> None:
    run = _run([(0.0, 2, 300.0), (1.0, 2, 100.0)], _together(np.full((2, 2), 1.01)), "1x4")
    run.advance(1.0)
    assert (run.state.gpu[:, 1] < 0).all()


def test_memory_is_made_by_smaller_sub_batches() -> None:
    """20 GiB beside 20 GiB on a GPU of 32: half the batch fits; without scaling the job waits."""
    together = _together(np.full((2, 2), 1.1), [20.0, 20.0], 32.0)
    rows = [(0.0, 1, 1000.0), (1.0, 1, 100.0)]
    run = _run(rows, together, "1x1")
    run.advance(1.0)
    assert (run.state.i[1, col.STATE], run.state.i[1, col.LEVEL]) == (col.RUNNING, 1)
    assert run.state.f[1, col.GPU_GIB] == 10.0
    assert run.state.f[1, col.SPEED] == pytest.approx(0.8 / 1.1)
    fixed = _run(rows, together, "1x1", "sjf-bsbf:scale_sub_batch=false")
    fixed.advance(1.0)
    assert fixed.state.i[1, col.STATE] == col.WAITING
    assert isinstance(fixed.policy, SjfBsbf)
    assert "no GPU has the memory" in fixed.engine.answers()(1)
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()


def test_ffs_shares_without_asking() -> None:
    slow = np.full((2, 2), 9.0)
    run = _run([(0.0, 1, 100.0), (1.0, 1, 90.0)], _together(slow), "1x1", "sjf-ffs")
    run.advance(1.0)
    assert run.state.gpu[0, :2].tolist() == [0, 1]


def test_preemptive_stops_the_longest() -> None:
    together = _together(np.full((2, 2), 1.1), [20.0, 20.0], 32.0)
    rows = [(0.0, 1, 5000.0), (1.0, 1, 10.0)]
    run = _run(rows, together, "1x1", "sjf-bsbf:preemptive=true,scale_sub_batch=false")
    run.advance(1.0)
    assert (run.state.i[0, col.STATE], run.state.i[1, col.STATE]) == (col.WAITING, col.RUNNING)


def test_judging_a_placement_is_the_pair_test_for_one_host() -> None:
    """Twice the difference of the means, whatever the lengths."""
    draw = np.random.default_rng(3)
    for _ in range(40):
        slow = 1 + draw.random((2, 2)) * 3
        l_b, l_a = draw.random(2) * 1000 + 1
        run = _run([(0.0, 1, l_b), (0.0, 1, l_a)], _together(slow), "1x1")
        left = np.array([l_b, l_a])
        run.advance(0.0)
        view = run.engine.view(0.0)
        table = slow[:, :, None].copy()
        scratch = lay_scratch(view, lay_scene(view), table, left, {0, 1})
        scratch.mates[0] = 0
        gain = cost(lay_scene(view), scratch, table, left, 1, 0, float(l_a), 1, 0) - last_end(scratch, left, 1) - l_a
        expected = 2 * (shared_mean(l_a, l_b, slow[1, 0], slow[0, 1]) - waiting_mean(l_a, l_b))
        assert gain == pytest.approx(expected, rel=1e-6, abs=1e-6)
        if abs(gain) > 1e-3:
            assert pays(l_a, l_b, slow[1, 0], slow[0, 1]) is bool(gain < 0)


@pytest.mark.parametrize(("policy", "shares"), [("sjf-bsbf", True), ("sjf-bsbf-paper", False)])
def test_a_start_up_is_hidden_behind_the_host(policy: str, shares: bool) -> None:
    """Beside each other both take three times as long, so the pair test says wait; but 8 s of the guest are its start.

    Waiting, it ends at 10 + 8 + 20 = 38. Beside the host it starts up while that does 8 of its 10 s, then both go at a
    third: the host ends at 8 + 3 x 2 = 14, 4 s later than alone, and the guest at 14 + (20 - 2) = 32. 32 + 4 < 38.
    """
    run = _run([(0.0, 1, 11.0), (1.0, 1, 20.0)], _together(np.full((2, 2), 3.0)), "1x1", policy)
    assert not pays(20.0, 10.0, 3.0, 3.0)
    run.state.f[1, col.START_UP] = 8.0
    run.advance(1.0)
    assert bool(run.state.i[1, col.STATE] == col.RUNNING) is shares
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == pytest.approx([15.0, 33.0] if shares else [11.0, 39.0])


def test_a_start_up_of_the_host_is_filled() -> None:
    """The host builds for 30 s more, in which the guest does all its work and slows nobody down.

    Without that they would part: a guest of 20 s beside a host of 5 s, both four times as long.
    """
    run = _run([(0.0, 1, 5.0), (1.0, 1, 20.0)], _together(np.full((2, 2), 4.0)), "1x1")
    assert not pays(20.0, 5.0, 4.0, 4.0)
    run.state.f[0, col.START_UP] = 31.0
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == pytest.approx([36.0, 21.0])


def test_whole_batches_where_memory_is_not_short() -> None:
    """A smaller sub-batch makes a job longer, and a longer job passes tests that it should not."""
    rows = [(0.0, 1, 50.0), (0.0, 1, 5000.0), (1.0, 1, 100.0), (1.0, 1, 90.0)]
    slow = np.full((4, 4), 1.3)
    for queue_aware in ("true", "false"):
        run = _run(rows, _together(slow, [4.0] * 4, 80.0), "1x2", f"sjf-bsbf:queue_aware={queue_aware}")
        run.advance(np.inf)
        assert (run.state.i[:, col.LEVEL] == 0).all()


def test_the_host_that_loses_least() -> None:
    """The paper takes the host with the lowest mean, here the shorter one; counting what each loses, the other."""
    slow = np.full((3, 3), 1.1)
    slow[2, 0], slow[0, 2] = 1.4, 1.4
    rows = [(0.0, 1, 300.0), (0.0, 1, 900.0), (1.0, 1, 100.0)]
    for options, host in (("", 1), (":queue_aware=false", 0)):
        run = _run(rows, _together(slow), "1x2", f"sjf-bsbf{options}")
        run.advance(1.0)
        assert run.state.gpu[host, :2].tolist() == [host, 2]


def _cut(slow: float, eased: float, gib: float = 20.0) -> Together:
    """Two kinds of 20 GiB on a GPU of 32; of what they lose to each other a half batch leaves `eased`."""
    left = np.tile([1.0, eased, eased], (2, 1))
    return replace(_together(np.full((2, 2), slow), [gib, gib], 32.0), eased=left)


def test_slowdowns_follow_the_sub_batch() -> None:
    """Half the batch leaves 0.3 of what the pair loses: xi is 1 + 0.3 x 1.0 for both, in the test and in truth."""
    rows = [(0.0, 1, 1000.0), (1.0, 1, 100.0)]
    run = _run(rows, _cut(2.0, 0.3), "1x1")
    run.advance(1.0)
    assert run.state.i[1, col.LEVEL] == 1
    assert run.state.f[:2, col.SPEED].tolist() == pytest.approx([1 / 1.3, 0.8 / 1.3])


def test_a_pair_that_only_smaller_steps_make_worthwhile() -> None:
    """xi 4 between whole batches. L_a = 100 / 0.8 = 125: the host must be longer than 125 x (2 xi - 2).

    With xi 4 that is 750, so a host of 500 s is refused; with xi 1.6 (eased to 0.2) it is 150, and they share.
    """
    rows = [(0.0, 1, 500.0), (1.0, 1, 100.0)]
    for eased, state in ((1.0, col.WAITING), (0.2, col.RUNNING)):
        run = _run(rows, _cut(4.0, eased), "1x1", "sjf-bsbf-paper")
        run.advance(1.0)
        assert run.state.i[1, col.STATE] == state


def test_the_published_rule_judges_each_host_alone() -> None:
    """A job of 2 GPUs and 100 s passes beside each of two hosts of 300 s, xi 2.2 and 1.2 (one of them suffers 9 times).

    Alone each pair pays, the second one because its own xi is small: L_b > L_a (2 xi_a - xi_a/xi_b - 1). Together the
    gang moves at 2.2, and what both hosts lose is more than waiting costs: ours waits, the published rule does not.
    """
    slow = np.ones((3, 3))
    slow[2, 0], slow[0, 2], slow[2, 1], slow[1, 2] = 2.2, 2.2, 1.2, 9.0
    rows = [(0.0, 1, 300.0), (0.0, 1, 300.0), (1.0, 2, 100.0)]
    states = {}
    for name in ("sjf-bsbf-paper", "sjf-bsbf:queue_aware=false"):
        run = _run(rows, _together(slow), "1x2", name)
        run.advance(1.0)
        states[name] = int(run.state.i[2, col.STATE])
    assert states == {"sjf-bsbf-paper": col.RUNNING, "sjf-bsbf:queue_aware=false": col.WAITING}


def test_the_published_rule_tries_every_sub_batch() -> None:
    """Memory is not short, but half the batch leaves a tenth of what is lost to xi 3. L_b = 250.

    Whole, L_a = 100: a mean of 125 + (1 - 1/6) x 300 = 375 s. Half, L_a = 125, xi 1.2: 125 + (1 - 1/2.4) x 150 = 212.5.
    """
    rows = [(0.0, 1, 251.0), (1.0, 1, 100.0)]
    for name, level in (("sjf-bsbf-paper", 1), ("sjf-bsbf-paper:scale_sub_batch=false", 0)):
        run = _run(rows, _cut(3.0, 0.1, 4.0), "1x1", name)
        run.advance(1.0)
        assert run.state.i[1, col.LEVEL] == level
