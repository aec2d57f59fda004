"""What is foretold of live jobs, in worlds whose jobs behave as believed, or nearly so."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from service_kit import ADMIN, EPOCH_S, Rig

import effort
from cotenant.backends.base import NodeInfo
from cotenant.beliefs.duration import WORD_SPREAD
from cotenant.core.cluster import Cluster
from cotenant.core.lifecycle import JobState
from cotenant.core.state import State, copy_state
from cotenant.core.workload import Codes, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.policies.registry import BUILT_IN
from cotenant.service.facade import Caller, Role
from cotenant.service.forecasts import background
from cotenant.service.forecasts.calibration import Calibration
from cotenant.service.forecasts.worker import Worker
from cotenant.service.planner.forecast import Patience, forecast
from cotenant.service.store.book import Book
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
        self.rig = Rig(home, policy, forecast_every_s=120.0)
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


@pytest.mark.parametrize("policy", effort.first(1, ["fifo", "srtf"]))
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
    assert len(inside) > 70
    assert 0.80 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("policy", list(BUILT_IN))
def test_any_policy_can_be_played_by_another_process(policy: str, tmp_path: Path) -> None:
    """What is played goes there and back as bytes, and leaves the live policy as it was."""
    rig = Rig(tmp_path, policy, (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),), profile="h200", budget_s=60.0)
    rig.shares = rig.in_parts = True
    jobs = [rig.submit("sleep 20", model=model, expected=20, gpu_mem=10) for model in ("bert", "lstm", "gpt2", "bert")]
    rig.ticks(2)
    scene = rig.service.planner.scene()
    before = copy_state(scene.state)
    told, whole = forecast(pickle.loads(pickle.dumps(scene)), Patience(rest_s=0.0))
    assert whole
    assert [job for job in jobs if told[job] is None] == []
    assert [one.end_s for one in told.values()] == [
        one.end_s for one in forecast(scene, Patience(rest_s=0.0))[0].values()
    ]
    pairs = zip(arrays(before), arrays(scene.state), strict=True)
    assert all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)
    rig.finish()


def arrays(state: State) -> list[np.ndarray]:
    """All tables, those of tenants one by one."""
    return [array for part in state for array in (part if isinstance(part, tuple) else (part,))]


def told(rig: Rig) -> dict[str, list[str]]:
    """At which moments it was written down what is foretold of each job."""
    found: dict[str, list[str]] = {}
    for record in rig.service.store.journal.read(0):
        if record.kind == "forecast":
            found.setdefault(record.job, []).append(record.data["at"])
    return found


def test_what_is_foretold_is_shown_written_down_once_and_survives(tmp_path: Path) -> None:
    rig = Rig(tmp_path, forecast_every_s=2.0)
    first, second = (rig.submit("sleep 100", gpus=4, expected=100) for _ in range(2))
    rig.ticks(3)
    waits, runs = rig.service.desk.job(ADMIN, second), rig.service.desk.job(ADMIN, first)
    assert waits.expected_end_s == pytest.approx(EPOCH_S + 200, rel=0.0, abs=40)
    assert waits.expected_end_low_s is not None
    assert waits.expected_end_high_s is not None
    assert runs.expected_end_s < waits.expected_end_low_s < waits.expected_end_s < waits.expected_end_high_s
    assert told(rig) == {first: ["submit", "start"], second: ["submit"]}
    book = rig.service.store.book
    assert Book.thaw(book.freeze()).jobs[first].foretold == book.jobs[first].foretold
    rig.restart()
    rig.ticks(70)
    assert told(rig) == {first: ["submit", "start", "half"], second: ["submit"]}, "and not again by the new service"
    rig.finish()
    assert told(rig) == {job: ["submit", "start", "half"] for job in (first, second)}
    ended = rig.service.desk.job(ADMIN, first)
    assert (ended.expected_end_s, ended.expected_end_low_s, ended.expected_end_high_s) == (None, None, None)
    found = rig.service.desk.evaluation(ADMIN)
    assert [(row["at"], row["forecasts"]) for row in found["errors"]] == [("submit", 2), ("start", 2), ("half", 2)]
    assert all(row["relative"] < 0.4 and row["inside"] == 1.0 for row in found["errors"])
    assert rig.service.desk.evaluation(Caller("bob", Role.USER, "other"))["errors"] == []
    scales = rig.service.store.book.calibration.scales
    assert scales != Calibration().scales
    assert rig.restart().store.book.calibration.scales == scales, "what was learned comes from the journal"


def test_forecasts_follow_those_who_wait_for_others(tmp_path: Path) -> None:
    """A chain, an array of which one element runs at a time, and whoever waits for a job that may not be stopped."""
    rig = Rig(tmp_path)
    fixed = rig.submit("sleep 50", gpus=4, expected=50, preemptible=False)
    rig.ticks(1)
    chained = rig.submit("sleep 30", gpus=4, expected=30, after=[fixed])
    array = rig.submit("sleep 10", gpus=4, expected=10, array="0-2%1")
    held = rig.submit("sleep 10", expected=10)
    rig.service.desk.hold(ADMIN, held)
    rig.ticks(1)
    names = [fixed, chained, *(f"{array}.{k}" for k in range(3))]
    found, _ = forecast(rig.service.planner.scene(), Patience(rest_s=0.0))
    assert found.keys() == set(names), "nobody knows when a held job goes on"
    ends_s = {name: found[name].end_s for name in names}
    rig.service.desk.cancel(ADMIN, held)
    rig.finish()
    ended_s = {name: rig.service.desk.job(ADMIN, name).ended_s for name in names}
    assert ends_s == pytest.approx(ended_s, abs=12.0), "starting is believed to take a moment, and takes none here"


def test_too_many_jobs_and_an_old_outlook_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, forecast_every_s=2.0)
    job = rig.submit("sleep 5000", expected=5000)
    rig.ticks(3)
    assert rig.service.desk.job(ADMIN, job).expected_end_low_s is not None
    monkeypatch.setattr(background, "MOST_JOBS", 1)
    rig.submit("sleep 5000", expected=5000)
    rig.ticks(3)
    assert rig.service.desk.job(ADMIN, job).expected_end_low_s is None
    monkeypatch.setattr(background, "MOST_JOBS", 9)
    rig.submit("sleep 5000", expected=5000)
    rig.ticks(3)
    assert rig.service.desk.job(ADMIN, job).expected_end_low_s is not None
    rig.backend.advance(300)
    assert rig.service.desk.job(ADMIN, job).expected_end_low_s is None, "it was foretold five minutes ago"


def test_a_process_of_its_own_plays_and_ends_with_the_service(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    job = rig.submit("sleep 50", expected=50)
    rig.ticks(1)
    worker = Worker()
    try:
        found, cost_s = worker.foretell(rig.service.planner.scene(), 2.0)
        (told_there,) = found.values()
        assert 0 < cost_s < 10
        assert told_there is not None
        assert told_there.low_s is not None
        assert worker.foretell(rig.service.planner.scene(), 2.0)[0].keys() == {job}
    finally:
        worker.close()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        worker.foretell(lambda: None, 1.0)
