"""What-if through the whole service, with its own beliefs: jobs start slowly, report steps and slow each other down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.jobspec import JobSpec
from cotenant.core.workload import Codes, make_workload
from cotenant.engine.keys import work_done
from cotenant.engine.tables import StopCosts
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.runtime.protocol import Hello, Progress
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.sim.experiment import Experiment
from cotenant.testing.same import nodes_of
from cotenant.testing.truth import TrueWorld, Truth

ME = Caller("root", Role.ADMIN)
WORK_S = {
    "gpt2": 15.0, "resnet18_cifar": 14.0, "resnet50": 30.0, "bert": 25.0, "mlp_rl": 20.0, "vit_b_16": 40.0,
    "lstm": 18.0, "recsys": 22.0,
}  # fmt: skip
COSTS = StopCosts(save_s=2.0, start_s=12.0, resume_s=1.0, suspends=True, most_suspended=8)
GAP_S, STEPS_PER_S = 4.0, 10.0


class Mix:
    """Eight jobs on one GPU, 4 s apart. Owners say how long each takes alone; the truth is the profile's."""

    def __init__(self, home: Path, policy: str) -> None:
        count, lengths_s = len(WORK_S), np.array(list(WORK_S.values()))
        work = make_workload(
            "mix", np.arange(count) * GAP_S, np.ones(count, np.int64), lengths_s,
            model=Codes(np.arange(count), tuple(WORK_S)),
        )  # fmt: skip
        self.truth = Truth(
            Experiment(
                work, Cluster.parse("1x1:h200"), policy, profile="h200", costs="3", stop_costs=COSTS, compiled=False
            )
        )
        self.world = TrueWorld(self.truth, nodes_of(self.truth.run))
        self.service = CoreService(
            MemoryJournal(MemoryStore(), clock=self._clock), self.world, home=home, policy=policy, clock=self._clock,
            inline=True, budget_s=1e9, round_s=60.0, profile="h200",
        )  # fmt: skip
        self.service.reconcile()
        self._submitted = 0

    def _clock(self) -> float:
        return self.world.now_s

    def go_on(self, now_s: float) -> None:
        """Everything of one moment: what happens, who comes, what jobs say, what is decided."""
        self.world.move_to(now_s)
        self.service.executor.perform()
        if self._submitted < len(WORK_S) and self._submitted * GAP_S <= now_s:
            model, work_s = list(WORK_S.items())[self._submitted]
            lasts_s = work_s + COSTS.start_s
            spec = JobSpec(run=f"python {model}.py", model=model, gpus=1, gpu_mem_gib=30.0, expected_s=lasts_s)
            self.service.desk.submit(ME, [spec])
            self._submitted += 1
        for row in range(self._submitted):
            self._say(row, now_s)
        seq = -1
        while seq != self.service.store.book.seq:
            seq = self.service.store.book.seq
            self.service.tick()
        self.truth.settle(now_s)

    def _say(self, row: int, now_s: float) -> None:
        f = self.truth.state.f[row]
        done_s = work_done(self.truth.state.f, self.truth.state.i, row, now_s)
        if not self.truth.runs(row) or now_s <= f[col.WARM] or done_s <= 0:
            return
        job = self.service.store.book.jobs[str(row + 1)]
        total = round(list(WORK_S.values())[row] * STEPS_PER_S)
        said = Progress(int(done_s * STEPS_PER_S), total, step_time_s=1 / (STEPS_PER_S * f[col.SPEED]), saves=True)
        self.service.reports.hear(Hello("", job.id, len(job.attempts), 1), said)

    def finish(self, after_s: float) -> None:
        now_s = after_s
        while self.service.store.book.active:
            now_s = max(min(now_s + 1.0, self.world.next_s()), now_s + 1e-3)
            self.go_on(now_s)
            assert now_s < 1000.0


@pytest.mark.parametrize(("policy", "most"), [("fifo", 0.03), ("srtf", 0.1), ("sjf-bsbf", 0.1), ("gandiva", 0.1)])
def test_what_if_after_the_last_submission(policy: str, most: float, tmp_path: Path) -> None:
    mix = Mix(tmp_path, policy)
    asked_s = GAP_S * (len(WORK_S) - 1)
    for now_s in np.arange(0.0, asked_s + 0.5, 0.5).tolist():
        mix.go_on(now_s)
    told = {row["id"]: row["forecasts"][policy] for row in mix.service.desk.whatif(ME, [])["jobs"]}
    mix.finish(asked_s)
    ended_s = {name: float(mix.service.store.book.jobs[name].last.ended_s or 0.0) for name in told}
    foretold_s = np.mean([one["expected_end_s"] for one in told.values()]) - asked_s
    took_s = np.mean(list(ended_s.values())) - asked_s
    assert foretold_s == pytest.approx(took_s, rel=most)
    inside = [one["expected_end_low_s"] <= ended_s[name] <= one["expected_end_high_s"] for name, one in told.items()]
    assert sum(inside) >= len(told) - 1
