"""Jobs that squeeze together on GPUs whose memory gives, under every policy that shares GPUs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.declared import Oversubscription
from cotenant.core.together import CURVE, SoftMemory, Together
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.profiles.softening import bus_curve

ROWS = [(0.0, 1, 501.0), (1.0, 1, 1000.0)]


def two(cap: float, bus_gib_s: float = 1e9) -> Together:
    """Two kinds of 16 GiB that can do with 10, at 0.9 beside each other and 0.8 with three quarters of their memory."""
    speed = 0.2 + 0.8 * CURVE
    table = sharing(np.full((2, 2), 0.9), memory_gib=[16, 16], gpu_gib=24, curve=[speed, speed], busy=[0.3, 0.3])
    if not cap:
        return table
    soft = SoftMemory(Oversubscription(cap, bus_gib_s), np.full(2, 10 / 16), np.full(2, 2.0))
    return replace(table, soft=soft)


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs", "horus"])
def test_two_share_a_gpu_with_three_quarters_each(policy: str) -> None:
    """At 0.9 * 0.8 = 0.72 the first ends 500 / 0.72 later; the other has 500 s left, and all its memory again."""
    run = shared_run(ROWS, two(1.5), "1x1", policy)
    run.advance(100.0)
    assert run.state.f[:, col.CAP].tolist() == [0.75, 0.75]
    run.advance(500 / 0.72 + 2)
    assert run.state.f[1, col.CAP] == 1.0
    run.advance(math.inf)
    assert run.outcome().finish_s == pytest.approx([1 + 500 / 0.72, 1 + 500 / 0.72 + 500])


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs", "horus"])
@pytest.mark.parametrize("table", [two(0), two(1.25), two(1.5, 31.9)], ids=["hard", "cap", "bus"])
def test_one_after_the_other_where_they_may_not(policy: str, table: Together) -> None:
    run = shared_run(ROWS, table, "1x1", policy)
    run.advance(math.inf)
    assert run.outcome().finish_s == pytest.approx([501, 1501])


def test_sjf_bsbf_waits_where_squeezing_costs_more_than_waiting() -> None:
    """At 0.9 * 0.5 both would end after 1000 / 0.45; one after the other they end at 1000 and 2000."""
    table = two(1.5)
    slow = np.maximum(2 * CURVE - 1, 0.01)
    run = shared_run([(0.0, 1, 1000.0)] * 2, replace(table, curve=np.stack([slow, slow])), "1x1", "sjf-bsbf")
    run.advance(math.inf)
    assert run.outcome().finish_s == pytest.approx([1000, 2000])


@pytest.mark.parametrize(("cap", "joins"), [(1.5, True), (1.25, False)])
def test_antman_squeezes_guests_only(cap: float, joins: bool) -> None:
    """The guaranteed job keeps its 16 GiB; the guest has the other 8, half of its peak and its least declared."""
    table = two(cap)
    assert table.soft is not None
    table = replace(table, soft=replace(table.soft, least=np.array([1.0, 0.5])))
    run = shared_run(ROWS, table, "1x1", "antman", priority=[0, -1])
    run.advance(10.0)
    assert bool(run.state.i[1, col.STATE] == col.RUNNING) == joins
    if joins:
        assert run.state.f[:, col.CAP].tolist() == pytest.approx([1.0, 0.5])


def load(jobs: int = 24) -> Workload:
    rng = np.random.default_rng(3)
    models = ["gpt2", "vit_b_16", "resnet50", "bert", "gpt2 (batch size 16)"]
    names = [models[k] for k in rng.integers(0, len(models), jobs)]
    gpus = rng.choice([1, 1, 1, 2], jobs)
    return make_workload(
        "t", np.sort(rng.uniform(0, 3600, jobs)), gpus, rng.lognormal(6, 1, jobs), model=Codes.of(names)
    )


@pytest.mark.parametrize("policy", ["sjf-bsbf", "antman", "gandiva", "horus", "muri-l"])
def test_grants_stay_within_the_gpu_and_the_cap(policy: str) -> None:
    """On 22.5 GiB GPUs, all through a run; a job larger than a GPU runs there too, and somebody is squeezed."""
    options = {"profile": "h200", "check_invariants": True, "compiled": False, "skip_infeasible": True}
    hard = Simulation(Experiment(load(), Cluster.parse("1x4:a10"), policy, **options))  # type: ignore[arg-type]
    run = Simulation(Experiment(load(), Cluster.parse("1x4:a10"), policy, oversubscribe="1.5", **options))  # type: ignore[arg-type]
    state, together = run.state, run.engine.facts.together
    assert together is not None
    assert len(run.work) > len(hard.work)
    squeezed = 0
    for moment in np.linspace(0, 40_000, 40).tolist():
        run.advance(moment)
        for jobs in state.gpu.tolist():
            here = [job for job in jobs if job >= 0]
            turn = state.i[here, col.TURN]
            here = [job for job, one in zip(here, turn.tolist(), strict=True) if one in (0, turn.max())]
            peaks = together.memory_gib[state.i[here, col.SPEED_ROW], state.i[here, col.LEVEL]]
            parts = state.f[here, col.CAP]
            assert (peaks * parts).sum() <= together.gpu_gib[0] + 1e-6
            assert len(here) == 1 or peaks.sum() <= 1.5 * together.gpu_gib[0] + 1e-6
            squeezed += int((parts < 1).any())
    assert squeezed > 0
    run.advance(math.inf)
    assert run.outcome().finished.all()


def test_the_bus_makes_the_curve_where_nobody_measured_one() -> None:
    """6 GiB out and back at 24 GiB/s take half a second: with a step of half a second that is half the speed."""
    assert bus_curve(np.array([0.0, 6.0]), 2.0, 24.0).tolist() == [1.0, 0.5]
