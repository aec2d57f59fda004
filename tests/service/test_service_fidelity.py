"""In a world in which nothing takes time but the work, the service does what the simulator foretells, to the second.

Orders are those of the books here: what stops cost is believed in the service and known in the simulator.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from service_kit import ADMIN, EPOCH_S, Rig

import effort
from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import Script
from cotenant.core.cluster import Cluster
from cotenant.core.workload import make_workload
from cotenant.service.observer.outcomes import EXIT_PREEMPTED
from cotenant.sim.driver import Experiment, simulate

COST_S = 1.25  # of a preemption, paid when it goes on
Job = tuple[float, int, float]  # arrival, GPUs, seconds of work


class World:
    """A rig whose jobs save when they are asked to leave, and go on from there."""

    def __init__(self, home: Path, policy: str) -> None:
        self.rig = Rig(home, policy, (NodeInfo("n0", "gpu", 4, 8, 64.0),), max_suspended=0)
        self.left_s: dict[str, float] = {}
        self._backend = self.rig.backend
        self._terminate, self._backend.behave = self._backend.terminate, self._behave
        self._backend.terminate = self._save  # type: ignore[method-assign]

    def _behave(self, spec: LaunchSpec) -> Script:
        return Script(duration_s=self.left_s[spec.job])

    def _save(self, key: str) -> bool:
        done = self._terminate(key)
        found = self._backend.world.jobs[key]
        if found.signal is not None:
            found.exit_code, found.signal = EXIT_PREEMPTED, None
            assert found.ended_s is not None
            assert found.started_s is not None
            first = key.endswith("-1")
            ran_s = found.ended_s - found.started_s
            self.left_s[found.spec.job] -= ran_s if first else max(ran_s, COST_S)
            self.left_s[found.spec.job] += COST_S
        return done

    def live(self, jobs: list[Job]) -> list[float]:
        """When each job has ended, looking again when the service says so."""
        names: list[str] = []
        service, backend = self.rig.service, self._backend
        while len(names) < len(jobs) or service.store.book.active:
            while len(names) < len(jobs) and EPOCH_S + jobs[len(names)][0] <= backend.now_s:
                _, gpus, work_s = jobs[len(names)]
                name = str(len(names) + 1)
                self.left_s[name] = work_s
                assert self.rig.submit(gpus=gpus, expected=work_s) == name
                names.append(name)
            wait_s = service.tick()
            if len(names) < len(jobs):
                wait_s = min(wait_s, EPOCH_S + jobs[len(names)][0] - backend.now_s)
            backend.wait_change(wait_s)
        ended = [service.desk.job(ADMIN, name).ended_s for name in names]
        return [at_s - EPOCH_S for at_s in ended if at_s is not None]


def some_jobs(seed: int, count: int = 25) -> list[Job]:
    chance = random.Random(seed)
    at_s = sorted(round(chance.uniform(0, 60), 3) for _ in range(count))
    return [(at, chance.choice((1, 1, 1, 2, 2, 4)), round(chance.uniform(2, 15), 3)) for at in at_s]


def foretold(jobs: list[Job], policy: str) -> list[float]:
    arrived, gpus, work_s = (np.array(column) for column in zip(*jobs, strict=True))
    work = make_workload("test", arrived, gpus, work_s)
    outcome = simulate(Experiment(work, Cluster.parse("1x4"), policy, costs=str(COST_S)))
    return (outcome.jct_s + arrived).tolist()


@pytest.mark.parametrize("seed", effort.first(1, [1, 2, 3]))
@pytest.mark.parametrize(
    "policy",
    [
        "fifo",
        "tiresias-l:threshold=10,weigh=false",
        "tiresias-l:threshold=5,queues=3,weigh=false",
        "las:round=8,weigh=false",
    ],
)
def test_the_service_does_what_the_simulator_foretells(tmp_path: Path, policy: str, seed: int) -> None:
    jobs = some_jobs(seed)
    live = World(tmp_path, policy).live(jobs)
    assert live == pytest.approx(foretold(jobs, policy), abs=0.2)


def test_a_job_is_displaced_when_it_reaches_the_limit_of_its_queue(tmp_path: Path) -> None:
    """It would have ended half a second later: whoever looks only once a second lets it go on."""
    jobs = [(0.0, 4, 3.0), (0.1, 4, 5.0)]
    ended = World(tmp_path, "tiresias-l:threshold=10,weigh=false").live(jobs)
    assert ended == pytest.approx([5.0 + COST_S + 0.5, 5.0 + COST_S + 0.5 + COST_S + 2.5], abs=0.02)


def test_a_starved_job_is_promoted_and_stays_so(tmp_path: Path) -> None:
    """Four jobs in a crowd: what was forgiven to whoever waited three times as long as it had run stays forgiven."""
    policy, plain = "tiresias-l:threshold=10,knob=3,weigh=false", "tiresias-l:threshold=10,weigh=false"
    moved = 0
    for seed in range(12):
        jobs = [(at_s / 3, gpus, work_s) for at_s, gpus, work_s in some_jobs(seed, 4)]
        live = World(tmp_path / str(seed), policy).live(jobs)
        assert live == pytest.approx(foretold(jobs, policy), abs=0.2)
        moved += live != pytest.approx(foretold(jobs, plain), abs=1.0)
    assert moved >= 2


def test_a_promotion_is_seen_when_it_is_due(tmp_path: Path) -> None:
    """The first job has 2 s, reaches the limit and waits; 3 times as long later it displaces the second one."""
    jobs = [(0.0, 4, 10.0), (0.1, 4, 2.4), (0.2, 4, 2.4), (0.3, 4, 2.4), (0.4, 4, 2.4)]
    world = World(tmp_path, "tiresias-l:threshold=8,knob=3,weigh=false")
    world.live(jobs)
    first = world.rig.service.desk.job(ADMIN, "1").attempts
    starts = [attempt.started_s - EPOCH_S for attempt in first if attempt.started_s is not None]
    assert starts[:2] == pytest.approx([0.0, 8.0], abs=0.02)
