"""What a live service believes in a comparison with the simulator: the same, and what only the truth can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.beliefs.duration import DurationGuess
from cotenant.beliefs.host_pace import HostPace
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.engine.cycle import Engine
from cotenant.engine.events import rekey
from cotenant.engine.live_rows import NewJob
from cotenant.service.planner.beliefs import Belief, LiveBeliefs
from cotenant.service.store.job import Attempt, LiveJob
from cotenant.service.store.learned import Key
from cotenant.sim.driver import Simulation
from cotenant.testing.truth import TrueWorld, Truth
from cotenant.workload.profiles.lifecycle import LifecycleRow


class TrueBeliefs(LiveBeliefs):
    """What a simulation believes of its jobs, and what the truth says that they lost."""

    spread = 0.0  # nothing is in doubt

    def __init__(self, live: LiveBeliefs, known: Simulation, truth: Truth) -> None:
        super().__init__(live.book, live.reports, live.profiles, False)
        self._known, self._truth = known, truth

    def new_job(self, job: LiveJob) -> NewJob:
        """As in the tables of the simulation."""
        row, state, work = TrueWorld.row_of(job.id), self._known.state, self._known.work
        f, i = state.f[row], state.i[row]
        pools = int(state.cls[i[col.CLASS], col.C_POOLS])
        types = {int(kind) for p, kind in enumerate(state.pool[:, col.POOL_TYPE]) if (pools >> p) & 1}
        barred = sum(1 << kind for kind in set(state.pool[:, col.POOL_TYPE].tolist()) - types)
        return NewJob(
            int(i[col.GPUS]) if not job.attempts else job.spec.gpus, float(f[col.SUBMIT]), job.tenant,
            int(i[col.SPEED_ROW]), float(f[col.CPUS]), float(f[col.MEM]), int(work.nodes[row]), barred,
            float(f[col.GPU_GIB]), -float(f[col.TIER]), float(f[col.DEADLINE]), float(f[col.DRAW]),
            float(f[col.STEPS]), float(f[col.WEIGHT]),
        )  # fmt: skip

    def deadline_s(self, job: LiveJob) -> float:  # type: ignore[override]
        """As the log says."""
        return float(self._known.state.f[TrueWorld.row_of(job.id), col.DEADLINE])

    def lost_s(self, job: LiveJob, types: dict[str, str]) -> float:
        """What is really lost."""
        return float(self._truth.lost_s[TrueWorld.row_of(job.id)])

    def duration(
        self, job: LiveJob, types: dict[str, str], speed: float | None = None, each: DurationGuess | None = None,
        words: Mapping[Key, Sequence[float]] | None = None,
    ) -> Belief:  # fmt: skip
        """As estimated."""
        return Belief(least_s=float(self._known.state.f[TrueWorld.row_of(job.id), col.BELIEF]), spread=self.spread)

    def host_pace(self) -> HostPace:
        """As it was."""
        return HostPace(0.0, 0.0)

    def phases(self, job: LiveJob) -> LifecycleRow:
        """What coming and going costs."""
        f = self._known.state.f[TrueWorld.row_of(job.id)]
        start_s, restore_s, resume_s = f[[col.START_UP, col.RESTORE, col.RESUME]].tolist()
        save_s = self._truth.costs.save_s
        return LifecycleRow(start_s, save_s, restore_s, save_s, resume_s, 0.0)

    def come_s(self, job: LiveJob, attempt: Attempt) -> float:
        """Nothing: the truth says what is done."""
        return 0.0

    def warm_s(self, job: LiveJob, now_s: float) -> float:
        """As the engine has it."""
        return float("nan")

    def is_ready(self, job: LiveJob, now_s: float) -> bool:
        """Nobody has to look again."""
        return True

    def ways(self, job: LiveJob, stands: bool) -> tuple[int, int]:
        """As the cost table says: all can save, and rather stand still where they can."""
        rung, yields = self._known.state.i[TrueWorld.row_of(job.id), [col.RUNG, col.YIELDS]].tolist()
        return rung, yields


class TrueEngine(Engine):
    """What a job has done when its process is gone, and owes, is told by the truth: a failed attempt leaves no debt."""

    truth: Truth

    def observe(self, now_s: float, events: Sequence[Event]) -> bool:
        """Take in what happened."""
        due = super().observe(now_s, events)
        for event in events:
            if event.kind == Kind.AGAIN:
                self.state.i[event.at, col.OWES] = self.truth.state.i[event.at, col.OWES]
                self.state.f[event.at, col.DONE] = self.truth.state.f[event.at, col.DONE]
                if self.state.i[event.at, col.STATE] == col.WAITING:
                    rekey(self.state, self.rule, event.at, now_s)
        return due
