"""The same experiment through the simulator and through the live service on the fake world, in virtual time.

Both sides have one truth (`testing.truth`), the same beliefs, options and seeds. The clock starts at 0, acts are done
at once, and everything of one instant is one step: ends, nodes, then arrivals. What comes out is compared transition by
transition, and by when jobs finish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.core import columns as col
from cotenant.core.decision import Change, Decision, Event, Transition
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.state import Rule
from cotenant.core.workload import Floats
from cotenant.engine.observe import places_of
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.failure_rule import FailureRule
from cotenant.service.options import Options
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.decision import Act
from cotenant.service.planner.planner import Planner
from cotenant.service.planner.session import Session
from cotenant.service.store.book import Book
from cotenant.sim.driver import Simulation
from cotenant.sim.experiment import Experiment
from cotenant.testing.true_beliefs import TrueBeliefs, TrueEngine
from cotenant.testing.truth import TrueWorld, Truth

Stream = list[tuple[float, Transition]]
_CALLER = Caller("root", Role.ADMIN)
_MOST_LOOKS = 50  # at one instant
_NEVER = FailureRule.parse("never")  # in a simulation failures of jobs speak against no node


class TrueSession(Session):
    """A live session that believes what a simulation believes, and writes down what is decided."""

    def __init__(self, run: LiveRun, *args: Any, **parts: Any) -> None:
        self._run, self._known = run, Simulation(replace(run.experiment, transitions=True))
        self._told_s = -inf
        costs = run.experiment.stop_costs
        super().__init__(*args, costs=replace(costs, save_s=inf if costs.lags else 0.0), **parts)
        self.tables.set_speeds(self._known.state.speed)
        facts = replace(self._known.engine.facts, rates=None)
        rates, defrag = self._known.engine.rates, self.engine.defrag
        self.engine = engine = TrueEngine(self.tables, self._policy, self.engine.rule, facts, rates, defrag=defrag)
        engine.truth = run.truth

    def begin(self, options: Options) -> Rule:
        """As the simulation begins."""
        self._policy = self._known.policy
        return self._known.rule()

    def beliefs(self, options: Options) -> LiveBeliefs:
        """Those of the simulation."""
        return TrueBeliefs(super().beliefs(options), self._known, self._run.truth)

    def renew(self, now_s: float) -> None:
        """Facts stay, but for what elastic jobs tell of their training, by which they are measured here too."""
        truth, mine = self._run.truth, self._known.elastic
        if truth.run.elastic is not None and mine is not None and now_s > self._told_s:
            self._told_s = now_s
            truth.run.elastic.tell(truth.state, now_s)
            mine.tell(self.tables.state, now_s)
            self.engine.facts = replace(self.engine.facts, training=truth.run.elastic.training)

    def decide(self, events: Sequence[Event], now_s: float) -> Decision | None:
        """Decide, tell the world on what terms, and keep what was decided."""
        decision = super().decide(events, now_s)
        assert decision is not None
        self._run.take(decision, self.tables.state.f[:, col.WARM])
        watch = self._known.watch
        if watch is not None and decision.asked and watch.look(self.tables.state):
            self.engine.facts = replace(self.engine.facts, pair=watch.belief.table())
        return decision


class TruePlanner(Planner):
    """Plans with such sessions."""

    def __init__(self, run: LiveRun, core: CoreService) -> None:
        capabilities, nodes = core.backend.capabilities, lambda: core.observer.nodes
        super().__init__(core.store, nodes, core.reports, capabilities, core.options, core.counters, core.openings)
        self._run = run

    def session(
        self, policy: str, nodes: Sequence[NodeInfo], now_s: float, kept: Any = None, book: Book | None = None
    ) -> Session:
        """One that believes what the simulation believes."""
        book, options = book or self._store.book, self._options
        return TrueSession(
            self._run, policy, nodes, book, self._reports, options, self._may_suspend, now_s, kept,
            openings=self._openings,
        )  # fmt: skip

    def _acts(self, session: Session, decision: Decision) -> list[Act]:
        """Who changes its size at once leaves and starts in the same look; one whose new workers join goes on."""
        others = tuple(item for item in decision.transitions if item.change != Change.RESIZE)
        acts = super()._acts(session, replace(decision, transitions=others))
        for item in decision.transitions:
            job = session.name_of(item.row)
            if item.change == Change.RESIZE and job is not None and item.row in self._run.world.sizes:
                acts.append(Act("stop", job, why="resize"))
                acts.append(Act("start", job, session.gpus(item.places), terms=item.terms))
        return acts


class LiveRun:
    """An experiment in the live service."""

    def __init__(self, experiment: Experiment, home: Path) -> None:
        self.experiment, self.truth = experiment, Truth(experiment)
        self.world = TrueWorld(self.truth, nodes_of(self.truth.run))
        self.transitions: Stream = []
        self._next_s = -inf
        costs = experiment.stop_costs
        self.service = CoreService(
            MemoryJournal(MemoryStore(), clock=self._clock), self.world, home=home, policy=experiment.policy,
            grace_s=1e9, clock=self._clock, inline=True, budget_s=1e9, check_invariants=True,
            round_s=experiment.round_s, max_suspended=costs.most_suspended if costs.suspends else 0,
            defrag=experiment.defrag, failure_rule=_NEVER, planner=lambda core: TruePlanner(self, core),
        )  # fmt: skip
        self.service.reconcile()

    def _clock(self) -> float:
        return self.world.now_s

    def take(self, decision: Decision, warm_s: Floats) -> None:
        """What the engine has decided; who changes its size makes progress again when the plan says so."""
        self.transitions.extend((decision.at_s, item) for item in decision.transitions)
        self._next_s = decision.next_s
        for item in decision.transitions:
            self.world.terms[item.row] = item.terms
            if item.change == Change.TERMS:
                self.truth.agree(item.row, item.terms)
            if item.change == Change.RESIZE and item.places != places_of(self.truth.state, item.row):
                self.world.sizes[item.row] = sum(gpus for _, gpus, _ in item.places), float(warm_s[item.row])

    def play(self, after: Callable[[float], object] = lambda now_s: None) -> Floats:
        """From the first arrival to the last end; when each job finished. `after` is called after each instant."""
        work, truth, outages = self.truth.run.work, self.truth, self.truth.outages
        book, arrived, failed = self.service.store.book, 0, 0
        now_s = float(work.submit_s[0])
        while arrived < len(work) or book.active:
            while outages.horizon_s < now_s or (failed == len(outages.table) and outages.horizon_s < inf):
                outages.extend()
            self.world.move_to(now_s)
            while failed < len(outages.table) and outages.table[failed, 0] <= now_s:
                self.world.fail_node(int(outages.table[failed, 1]), bool(outages.table[failed, 2]))
                failed += 1
            self.service.executor.perform()  # whoever was falling still may have done so by now
            last = int(np.searchsorted(work.submit_s, now_s, "right"))
            if last > arrived:
                self.service.desk.submit(_CALLER, [self._spec(row) for row in range(arrived, last)])
                arrived = last
            self._look()
            truth.settle(now_s)
            after(now_s)
            dues = [self._next_s, self.world.next_s()]
            dues += [float(work.submit_s[arrived])] if arrived < len(work) else []
            dues += [float(outages.table[failed, 0])] if failed < len(outages.table) else []
            later = [due_s for due_s in dues if now_s < due_s < inf]
            if not later and book.active:
                raise AssertionError(f"nothing is ever going to happen after {now_s:g} s: {list(book.active)}")
            now_s = min(later, default=inf)
        for job in book.jobs.values():
            if job.state != JobState.SUCCEEDED:
                raise AssertionError(f"job {TrueWorld.row_of(job.id)} has {job.state} live: {job.message}")
        return np.array([book.jobs[str(row + 1)].ended_s for row in range(len(work))], np.float64)

    def _look(self) -> None:
        """Look until nothing happens any more at this instant."""
        book = self.service.store.book
        for _ in range(_MOST_LOOKS):
            before = book.seq
            self.service.tick()
            if book.seq == before and self._next_s > self.world.now_s:
                return
        raise AssertionError(f"there is no end to it at {self.world.now_s:g} s")

    def _spec(self, row: int) -> JobSpec:
        work = self.truth.run.work
        return JobSpec(
            run="train", gpus=int(work.gpus[row]), model=work.model.names[work.model.code[row]], retries=1000,
            nodes=int(work.nodes[row]), priority=int(work.priority[row]),
        )  # fmt: skip


def nodes_of(run: Simulation) -> list[NodeInfo]:
    """The nodes of an experiment, in the order of its tables."""
    state, types = run.state, list(dict.fromkeys(group.gpu_type for group in run.experiment.cluster.groups))
    found = []
    for number, (_, _, pool, size, *_) in enumerate(state.node.tolist()):
        kind = int(state.pool[pool, col.POOL_TYPE])
        cpus, mem_gib = state.host[number, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]].tolist()
        gib = float(state.gpu_gib[kind])
        found.append(NodeInfo(f"n{number:03}", types[kind], size, cpus, mem_gib, "up", 0.0 if gib == inf else gib))
    return found


@dataclass(frozen=True, slots=True)
class Sameness:
    """What came of it: transitions of the simulation, the largest difference of completion times, what differs."""

    transitions: int
    apart_s: float
    difference: str = ""


def compare(experiment: Experiment, home: Path) -> Sameness:
    """Play an experiment on both sides."""
    run = Simulation(replace(experiment, transitions=True, compiled=False))
    run.advance(inf)
    live = LiveRun(replace(experiment, compiled=False), home)
    finished_s = live.play()
    apart_s = float(np.abs(finished_s - run.state.f[:, col.FINISH]).max())
    difference = first_difference(run.transitions, live.transitions)
    if not difference and not apart_s <= 1e-6:
        row = int(np.argmax(np.abs(finished_s - run.state.f[:, col.FINISH])))
        difference = f"job {row} ends at {run.state.f[row, col.FINISH]!r} s simulated, {finished_s[row]!r} s live"
    return Sameness(len(run.transitions), apart_s, difference)


def first_difference(simulated: Stream, live: Stream) -> str:
    """The first transition in which two streams differ, in words; empty where there is none."""
    for at in range(max(len(simulated), len(live))):
        one, other = (stream[at] if at < len(stream) else None for stream in (simulated, live))
        if one is None or other is None or abs(one[0] - other[0]) > 1e-6 or one[1] != other[1]:
            return f"transition {at}: simulated {_said(one)}, live {_said(other)}"
    return ""


def _said(item: tuple[float, Transition] | None) -> str:
    if item is None:
        return "nothing more"
    at_s, done = item
    where = " on " + " ".join(f"node {node} mask {mask:#x}" for node, _, mask in done.places) if done.places else ""
    moved = f" moved={done.moved}" if done.moved else ""
    return f"{at_s!r} s {done.change} row {done.row}{where}{moved} {done.terms}"
