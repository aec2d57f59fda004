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
from cotenant.policies.bsbf.policy import SjfBsbf, _scene, _scratch
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
        scratch = _scratch(view, table, left, {0, 1})
        scratch.mates[0] = 0
        gain = cost(_scene(view), scratch, table, left, 1, float(l_a), 1, 0) - last_end(scratch, left, 1) - l_a
        expected = 2 * (shared_mean(l_a, l_b, slow[1, 0], slow[0, 1]) - waiting_mean(l_a, l_b))
        assert gain == pytest.approx(expected, rel=1e-6, abs=1e-6)
        if abs(gain) > 1e-3:
            assert pays(l_a, l_b, slow[1, 0], slow[0, 1]) is bool(gain < 0)


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
