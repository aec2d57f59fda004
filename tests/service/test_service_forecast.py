"""What is foretold of live jobs, in worlds whose jobs behave as believed, or nearly so."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import NodeInfo
from cotenant.beliefs.duration import WORD_SPREAD
from cotenant.core.cluster import Cluster
from cotenant.core.lifecycle import JobState
from cotenant.core.workload import Codes, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.policies.registry import BUILT_IN
from cotenant.service.planner.forecast import Patience, forecast
from cotenant.sim.experiment import Experiment
from cotenant.testing.same import LiveRun

POLICIES = (
    "fifo", "easy", "srtf", "las", "tiresias-l:threshold=600,knob=4", "sjf-bsbf", "sjf-ffs", "gandiva", "antman",
    "muri-s",
)  # fmt: skip
COSTS = StopCosts(save_s=3.0, start_s=20.0, resume_s=2.0, suspends=True, most_suspended=4)
MODELS = ("resnet50", "vit_b_16", "gpt2", "bert", "lstm", "recsys", "mlp_rl")
JOBS = 16


def experiment(policy: str, costs: StopCosts, seed: int = 3) -> Experiment:
    """Twice as many jobs as fit, of one to ten minutes; nothing fails."""
    draw = np.random.default_rng(seed)
    work = make_workload(
        "test", np.arange(JOBS) * 10.0, draw.choice([1, 1, 1, 2], JOBS), np.floor(60 * 10 ** draw.random(JOBS)),
        model=Codes(draw.integers(0, len(MODELS), JOBS), MODELS),
    )  # fmt: skip
    cluster = Cluster.parse("1x4:h200")
    return Experiment(
        work, cluster, policy, profile="h200", round_s=60.0, seed=seed, costs="10", stop_costs=costs, compiled=False
    )


def foretell(policy: str, costs: StopCosts, home: Path) -> tuple[np.ndarray, np.ndarray]:
    """Foretold and happened ends of the jobs that were left when the last one had come."""
    run = LiveRun(experiment(policy, costs), home)
    told: dict[str, float] = {}
    asked_s = float(run.truth.run.work.submit_s[-1]) + 25.0
    at: list[float] = []

    def after(now_s: float) -> None:
        if now_s >= asked_s and not at:
            at.append(now_s)
            found, whole = forecast(run.service.planner.scene(policy), Patience(rest_s=0.0))
            assert whole
            told.update({job: one.end_s for job, one in found.items() if one is not None})

    run.play(after)
    book = run.service.store.book
    left = [job for job in book.jobs.values() if (job.ended_s or 0.0) > at[0]]
    assert {job.id for job in left} == told.keys()
    assert all(job.state == JobState.SUCCEEDED for job in left)
    return np.array([told[job.id] for job in left]), np.array([job.ended_s for job in left])


@pytest.mark.parametrize("costs", [StopCosts(), COSTS], ids=["free", "slow"])
@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_that_behave_as_believed_end_as_foretold(policy: str, costs: StopCosts, tmp_path: Path) -> None:
    told_s, ended_s = foretell(policy, costs, tmp_path)
    assert len(told_s) >= 3
    assert np.abs(told_s - ended_s).max() < 0.01


class Noisy:
    """Four GPUs whose jobs take what their owners say, but for noise of this spread; foretold as they come."""

    def __init__(self, home: Path, policy: str, spread: float, seed: int) -> None:
        self.rig = Rig(home, policy, forecast_every_s=60.0)
        self._chance, self._spread = np.random.default_rng(seed), spread

    def submit(self, count: int) -> None:
        for _ in range(count):
            said_s = float(60 * 10 ** self._chance.random())
            takes_s = said_s * float(np.exp(self._spread * self._chance.standard_normal()))
            self.rig.submit(f"sleep {takes_s:.3f}", gpus=int(self._chance.choice([1, 1, 2])), expected=said_s)

    def finish(self) -> None:
        while self.rig.service.store.book.active:
            self.rig.service.tick()
            self.rig.backend.wait_change(20.0)


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_nine_of_ten_ends_lie_in_their_intervals(policy: str, tmp_path: Path) -> None:
    """Owners are as wrong as they are believed to be: pooled over worlds and moments."""
    inside: list[bool] = []
    for seed in range(2):
        world = Noisy(tmp_path / str(seed), policy, WORD_SPREAD, seed)
        world.submit(20)
        world.finish()
        found = world.rig.service.desk.evaluation(ADMIN)
        assert {row["at"] for row in found["errors"]} == {"submit", "start", "half"}
        inside += [one["low_s"] <= one["took_s"] <= one["high_s"] for one in found["forecasts"]]
    assert len(inside) > 90
    assert 0.80 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("policy", [one.name for one in BUILT_IN])
def test_any_policy_can_be_played_by_another_process(policy: str, tmp_path: Path) -> None:
    """What is played goes there and back as bytes, and leaves the live policy as it was."""
    rig = Rig(tmp_path, policy, (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),), profile="h200", budget_s=60.0)
    rig.shares = rig.in_parts = True
    jobs = [rig.submit("sleep 20", model=model, expected=20, gpu_mem=10) for model in ("bert", "lstm", "gpt2", "bert")]
    rig.ticks(2)
    scene = rig.service.planner.scene()
    before = [array.copy() for array in scene.state]
    told, whole = forecast(pickle.loads(pickle.dumps(scene)), Patience(rest_s=0.0))
    assert whole
    assert [job for job in jobs if told[job] is None] == []
    assert [one.end_s for one in told.values()] == [one.end_s for one in forecast(scene, Patience(rest_s=0.0))[0].values()]
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(before, scene.state, strict=True))
    rig.finish()
