"""One truth for the simulator and for the live service on the fake world.

`Truth` moves jobs by the simulator's own tables, kernels and rate models, but decides nothing: it is told who starts on
which GPUs and who leaves them, and tells who ends or fails, and when. Speeds and company come from the profile of an
experiment, failures of jobs from the attempts of its log, failures of nodes from its seed, and every transition costs
what the experiment says. `TrueWorld` is a fake world whose processes live by it.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend, FakeJob, Script
from cotenant.core import columns as col
from cotenant.core.plan import ALONE, Places, Terms
from cotenant.core.state import make_rule
from cotenant.engine.events import handle, node_down, node_up
from cotenant.engine.keys import position_of, work_done
from cotenant.engine.leaving import preempt
from cotenant.engine.ledger import enqueue, rerun, resize, start
from cotenant.engine.resizing import lay_slices, let_go
from cotenant.engine.tables import StopCosts
from cotenant.service.observer.outcomes import EXIT_PREEMPTED
from cotenant.service.planner.nodes import NodeNumbers
from cotenant.sim.driver import Simulation
from cotenant.sim.experiment import Experiment


class Truth:
    """What really happens to the jobs of an experiment, whoever decides."""

    def __init__(self, experiment: Experiment) -> None:
        self.costs = experiment.stop_costs
        physics = replace(self.costs, save_s=0.0, suspends=False, most_suspended=0)
        self.run = Simulation(replace(experiment, stop_costs=physics, transitions=True))
        self.state, self.outages = self.run.state, self.run.outages
        self.state.x[col.LOGGING] = 0
        self.state.x[col.ROTATES] = int(self.costs.rotates and self.run.traits.takes_turns)
        self.rates = self.run.engine.rates
        self.rule = make_rule((), {}, {col.CHECKPOINT_S: self.outages.checkpoint_s})
        self.lost_s = np.zeros(len(self.state.f))  # work that went with the last attempt of each job, at speed 1

    @property
    def next_s(self) -> float:
        """When the next job ends or fails by itself."""
        return float(self.state.f[self.state.events[0], col.EVENT]) if self.state.x[col.N_EVENTS] else inf

    def runs(self, row: int) -> bool:
        """Whether it makes progress, or is about to."""
        return bool(self.state.i[row, col.STATE] == col.RUNNING)

    def start(self, row: int, places: Places, now_s: float, terms: Terms = ALONE) -> None:
        """A job starts on exactly these GPUs."""
        state = self.state
        if state.i[row, col.STATE] == col.FUTURE:
            enqueue(state, self.rule, row, now_s)
        size = sum(gpus for _, gpus, _ in places)
        if size != state.i[row, col.GPUS]:
            resize(state, row, size)
        state.i[row, col.LEVEL] = terms.level
        self.agree(row, terms)
        start(state, self.rule, row, lay_slices(state, places), now_s)
        self._join(row, places)

    def agree(self, row: int, terms: Terms) -> None:
        """Other terms for a job; its level is kept while it runs."""
        state = self.state
        state.f[row, col.SHARE], state.f[row, col.CAP] = terms.share, terms.cap
        state.i[row, [col.TURN, col.SLICED, col.COLUMN]] = terms.turn, terms.sliced, terms.column

    def _join(self, row: int, places: Places) -> None:
        """Whoever was first on its GPUs is its host."""
        node, _, mask = places[0]
        first = self.state.gpu[int(self.state.gpu_first[node]) + (mask & -mask).bit_length() - 1, 0]
        self.state.i[row, col.HOST] = first if first != row else -1

    def go_on(self, row: int, places: Places, now_s: float) -> None:
        """A suspended job goes on where it stood: nothing is loaded, and what is saved is as old as before."""
        state = self.state
        saved_s, owes = state.f[row, col.SAVED], state.i[row, col.OWES]
        start(state, self.rule, row, lay_slices(state, places), now_s)
        self._join(row, places)
        state.f[row, col.SAVED], state.i[row, col.OWES] = saved_s, owes
        state.f[row, col.WARM] = now_s + state.f[row, col.RESUME]
        self._again(row)

    def _again(self, row: int) -> None:
        state = self.state
        rerun(state, self.rule, row, position_of(state.run, state.x[col.N_RUN], row))

    def shrink_or_grow(self, row: int, gpus: int, now_s: float) -> None:
        """A running job gives its GPUs back for a moment, to go on with so many others."""
        let_go(self.state, self.rule, row, gpus, now_s)

    def go_on_after(self, row: int, places: Places, warm_s: float, now_s: float) -> None:
        """And it has these now, with which it makes progress from a moment on."""
        start(self.state, self.rule, row, lay_slices(self.state, places), now_s)
        self.state.f[row, col.WARM] = warm_s
        self._again(row)

    def leave(self, row: int, now_s: float, suspended: bool = False) -> None:
        """A job makes no more progress: it saves and leaves, or falls still."""
        owed = self.state.i[row, col.OWES]
        preempt(self.state, self.rule, row, now_s, 0)
        self.lost_s[row] = 0.0
        if suspended:
            self.state.i[row, col.OWES] = owed

    def forget_unsaved(self, row: int) -> None:
        """A suspended job is ended."""
        state = self.state
        self.lost_s[row] = state.f[row, col.DONE] - state.f[row, col.SAVED]
        state.f[row, col.DONE] = state.f[row, col.SAVED]
        state.i[row, col.OWES] = int(state.f[row, col.DONE] > 0)

    def happen(self, now_s: float) -> list[tuple[int, bool]]:
        """Who has come to its end by now (True), or failed."""
        found, state = [], self.state
        while self.next_s <= now_s:
            row = int(state.events[0])
            handle(state, self.rule, row, now_s)
            self.lost_s[row] = 0.0
            found.append((row, bool(state.i[row, col.STATE] == col.FINISHED)))
        return found

    def set_node(self, node: int, up: bool, now_s: float) -> None:
        """A node fails, and with it what its jobs did since their last checkpoints; or it is back."""
        state = self.state
        if up:
            node_up(state, node)
            return
        running = np.flatnonzero(state.i[:, col.STATE] == col.RUNNING).tolist()
        done_s = {row: work_done(state.f, state.i, row, now_s) for row in running}
        node_down(state, self.rule, node, now_s)
        for row in running:
            if state.i[row, col.STATE] != col.RUNNING:
                self.lost_s[row] = done_s[row] - state.f[row, col.DONE]

    def settle(self, now_s: float) -> None:
        """Everything of this moment is done: jobs go on at the speed of their company."""
        self.state.t[col.NOW] = now_s
        if self.rates is not None:
            self.rates.update(self.state, self.rule, now_s)


class TrueWorld(FakeBackend):
    """A fake world whose processes live by a truth. Jobs are named by their row + 1.

    `terms` are what jobs were told at their last start, or while they run; whoever carries decisions out tells them.
    """

    def __init__(self, truth: Truth, nodes: list[NodeInfo]) -> None:
        super().__init__(nodes, behave=lambda spec: Script(duration_s=inf))
        self.truth, self.numbers = truth, NodeNumbers(nodes)
        self.terms: dict[int, Terms] = {}
        self.sizes: dict[int, tuple[int, float]] = {}  # who changes its size: to what, and when it goes on
        self._still_s: dict[str, float] = {}  # when whoever is being suspended will stand still

    @staticmethod
    def row_of(key: str) -> int:
        """The row of an attempt's job."""
        return int(key.split("-")[0]) - 1

    @property
    def costs(self) -> StopCosts:
        """What transitions cost."""
        return self.truth.costs

    def next_s(self) -> float:
        """When something happens by itself."""
        agenda = self.world.agenda[0][0] if self.world.agenda else inf
        return min(self.truth.next_s, agenda, *(at_s for at_s in self._still_s.values() if at_s > self.now_s), inf)

    def move_to(self, now_s: float) -> None:
        """Let time pass up to a moment, and happen what is due."""
        while self.world.agenda and self.world.agenda[0][0] <= now_s:
            self._happen()
        self.world.now_s = now_s
        for row, succeeded in self.truth.happen(now_s):
            job = next(one for one in self._alive() if self.row_of(one.spec.key) == row)
            self._end(job, 0 if succeeded else 1, None)

    def fail_node(self, node: int, up: bool) -> None:
        """A node by number goes down or comes back."""
        self.truth.set_node(node, up, self.now_s)
        name = self.numbers.gpus(((node, 1, 1),))[0][0]
        for job in self._alive() if not up else ():
            there = any(name == one for one, _ in job.spec.gpus)
            if there and (self._still_s.pop(job.spec.key, None) is not None or job.state == "suspended"):
                self.truth.forget_unsaved(self.row_of(job.spec.key))
        self.set_node(name, up)

    def _lose(self, job: FakeJob, message: str) -> None:
        if job.script.signal is None:  # who is being killed is gone when that is done, node or not
            super()._lose(job, message)

    def _alive(self) -> list[FakeJob]:
        return [job for job in self.world.jobs.values() if job.state in ("starting", "running", "suspended")]

    def launch(self, spec: LaunchSpec) -> None:
        """Start it on its GPUs."""
        super().launch(spec)
        self.advance(0.0)
        row, places = self.row_of(spec.key), self.numbers.places(spec.gpus)
        if row in self.sizes:
            self.truth.agree(row, self.terms.get(row, ALONE))
            self.truth.go_on_after(row, places, self.sizes.pop(row)[1], self.now_s)
        else:
            self.truth.start(row, places, self.now_s, self.terms.get(row, ALONE))

    def terminate(self, key: str) -> bool:
        """It saves, which takes its time, and leaves."""
        job = self._living(key)
        if job is None or job.script.exit_code == EXIT_PREEMPTED:
            return job is not None
        row = self.row_of(key)
        if row in self.sizes:
            self.truth.shrink_or_grow(row, self.sizes[row][0], self.now_s)
        else:
            self.truth.leave(row, self.now_s)
        job.script = replace(job.script, exit_code=EXIT_PREEMPTED)
        if self.costs.save_s:
            self._plan(job, self.costs.save_s)
        else:
            self._end(job, EXIT_PREEMPTED, None)
        return True

    def kill(self, key: str) -> bool:
        """Only whoever stands still is killed, which takes its time too."""
        job = self._living(key)
        if job is not None and job.script.signal is None:
            self.truth.forget_unsaved(self.row_of(key))
            job.script = replace(job.script, signal=9)
            self._plan(job, self.costs.save_s)
        return job is not None

    def suspend(self, key: str) -> bool:
        """It falls still, which takes its time: until then there is no answer yet."""
        if self._living(key) is None:
            return False
        if key not in self._still_s:
            self.truth.leave(self.row_of(key), self.now_s, suspended=True)
            self._still_s[key] = self.now_s + self.costs.save_s
        if self.now_s < self._still_s[key]:
            return None  # type: ignore[return-value]
        del self._still_s[key]
        return super().suspend(key)

    def resume(self, key: str) -> bool:
        """It goes on."""
        job = self._living(key, "suspended")
        if job is None or not super().resume(key):
            return False
        row = self.row_of(key)
        self.truth.agree(row, self.terms.get(row, ALONE))
        self.truth.go_on(row, self.numbers.places(job.spec.gpus), self.now_s)
        return True
