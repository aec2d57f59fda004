"""Parts that crash: what each costs, by the examples of FfDL's specification, and that nothing else stops meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Workload
from cotenant.sim import crashes
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_work_conserved, jobs, random_workload

NEVER = "ffdl:learner=inf,helper=inf,monitor=inf,service=inf,node=inf"


def play(work: Workload, cluster: str, due: list[tuple[float, str, int]], policy: str = "fifo") -> Outcome:
    """A run in which exactly these parts crash."""
    options = {"costs": "none", "check_invariants": True, "compiled": False}
    run = Simulation(Experiment(work, Cluster.parse(cluster), policy, crash=NEVER, **options))  # type: ignore[arg-type]
    assert run.crashes is not None
    run.crashes.due.extend(due)
    assert run.advance(np.inf)
    return run.outcome()


@pytest.fixture(autouse=True)
def _recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, seconds in {"learner": 15.0, "helper": 3.5, "monitor": 1.5, "service": 5.0}.items():
        monkeypatch.setitem(crashes.RECOVERY_S, part, (seconds, seconds))


@pytest.mark.parametrize(("part", "finish_min", "lost_gpu_min"), [("learner", 130.25, 41), ("monitor", 120, 0)])
def test_lost_work(part: str, finish_min: float, lost_gpu_min: float) -> None:
    """120 minutes, 4 GPUs, a checkpoint every 30: a learner gone at 100 is back at 100.25 and goes on from 90.

    40 GPU-minutes are done again, and 4 GPUs stand still for a quarter of a minute. A monitor costs nothing.
    """
    result = play(jobs((0, 1, 7200)), "1x1", [(6000.0, part, 0)])
    assert result.finish_s[0] == finish_min * 60
    assert result.lost_gpu_s[0] * 4 == lost_gpu_min * 60
    assert result.summary[f"crashes_{part}"] == 1
    assert (result.preemptions[0], result.restarts[0]) == (0, int(part == "learner"))
    assert_work_conserved(result)


def test_a_gang_waits_for_its_learner() -> None:
    """Two nodes, one learner each; the one on node 1 crashes at 2000: both are back at 2015 and go on from 1800."""
    result = play(jobs((0, 2, 3600)), "2x1", [(2000.0, "learner", 1)])
    assert result.finish_s[0] == 2015 + 1800
    assert result.summary["redone_gpu_s"] == 2 * 200


def test_nobody_sits_there() -> None:
    result = play(jobs((0, 1, 100)), "2x1", [(50.0, "learner", 1)])
    assert (result.finish_s[0], result.summary["crashes_learner"]) == (100, 0)


def test_the_service_is_down() -> None:
    """From 99 to 104: the first job ends at 100 all the same, the second starts at 104, the third is let in then."""
    result = play(jobs((0, 1, 100), (1, 1, 50), (101, 1, 10)), "1x1", [(99.0, "service", 0)])
    assert result.finish_s.tolist() == [100, 154, 164]
    assert result.first_start_s.tolist() == [0, 104, 154]


@pytest.mark.parametrize("policy", ["las", "sjf-bsbf"])
def test_every_job_ends_however_much_crashes(policy: str) -> None:
    seconds = "learner=900,helper=900,monitor=900,service=600,node=4000,repair=100,checkpoint=60"
    experiment = Experiment(
        random_workload(4, 25, 4, busy_s=600), Cluster.parse("3x4"), policy, seed=2,
        crash=f"ffdl:{seconds}", check_invariants=True, compiled=False,
    )  # fmt: skip
    first, again = simulate(experiment), simulate(experiment)
    assert np.isfinite(first.finish_s).all()
    assert min(int(str(first.summary[f"crashes_{part}"])) for part in ("learner", "service")) > 0
    assert first.finish_s.tolist() == again.finish_s.tolist()


@pytest.mark.parametrize("more", [{"crash": "k8s"}, {"crash": "ffdl:learner=0"}, {"crash": "ffdl", "power": "ces"}])
def test_bad_input(more: dict[str, str]) -> None:
    with pytest.raises(InputError):
        simulate(Experiment(jobs((0, 1, 10)), Cluster.parse("1x1"), "fifo", **more))  # type: ignore[arg-type]


def test_a_learner_that_restores_owes_the_rest() -> None:
    """A crash while it stands still: it begins to come back again, 15 s after what it had left."""
    run = play(jobs((0, 1, 1000)), "1x1", [(100.0, "learner", 0), (105.0, "learner", 0)])
    assert run.finish_s[0] == 100 + 15 + 15 + 1000
