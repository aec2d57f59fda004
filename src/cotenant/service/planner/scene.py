"""The live state as it is to be played forward under one policy: plain data that can go to another process.

A scene of the live policy is a copy of the tables that decide, with all that was promised, agreed and remembered; that
of another policy is laid out anew from the book, with what jobs have done as the live tables know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.beliefs.duration import CLEAR
from cotenant.beliefs.host_pace import HostPace
from cotenant.core import columns as col
from cotenant.core.bound import bound_to_host
from cotenant.core.jobspec import FAILED, OK, dependency
from cotenant.core.lifecycle import JobState
from cotenant.core.state import Rule, State, copy_state
from cotenant.core.view import Facts
from cotenant.core.workload import Floats, Ints
from cotenant.engine.events import rekey
from cotenant.engine.heaps import set_event
from cotenant.engine.keys import position_of
from cotenant.engine.ledger import rerun, schedule_wait
from cotenant.engine.observe import done_by
from cotenant.engine.rates import RateModel
from cotenant.engine.turns import Overruns
from cotenant.policies import Policy
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.session import Session
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.view import BookView

_PLANNED = (col.WAITING, col.RUNNING, col.PINNED)
_LEAST_LEFT_S = 1.0  # of a job that should have ended by now
_MOST_DEAD = 4  # rows per living one up to which the live tables are copied


class Chain(NamedTuple):
    """A job that waits for others: all of `after` have to end, or its array (`array`) has to let it in."""

    row: int
    after: frozenset[int]
    array: str


@dataclass(slots=True)
class ForecastScene:
    """Tables that are never changed: each play has a copy. The columns below go with `rows`.

    `done_s` and `left_s` are what jobs have done by now and still have to do at speed 1, `spread` the doubt about it
    (of its logarithm); where `whole`, about what they have to do in all. `start_spread` is the doubt about start-ups,
    `start_shift` and `work_shift` are by how much they and the work that is left take longer than believed at the
    host's present pace, `bound` how much of a change of that pace the work shares.
    `loses` are those who lose unsaved work when they are stopped, `array_of` says of which limited arrays jobs are,
    `overruns` who was late for the end of its turn.
    """

    name: str
    now_s: float
    state: State
    rule: Rule
    policy: Policy
    facts: Facts
    rates: RateModel | None
    row_of: dict[str, int]
    jobs: list[str] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    done_s: Floats = field(default_factory=lambda: np.zeros(0))
    left_s: Floats = field(default_factory=lambda: np.zeros(0))
    spread: Floats = field(default_factory=lambda: np.zeros(0))
    start_spread: Floats = field(default_factory=lambda: np.zeros(0))
    start_shift: Floats = field(default_factory=lambda: np.zeros(0))
    work_shift: Floats = field(default_factory=lambda: np.zeros(0))
    bound: Floats = field(default_factory=lambda: np.zeros(0))
    pace: HostPace = field(default_factory=lambda: HostPace(0.0, 0.0))
    whole: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    chains: list[Chain] = field(default_factory=list)
    array_of: dict[int, str] = field(default_factory=dict)
    loses: frozenset[int] = frozenset()
    endless: frozenset[str] = frozenset()  # services: of them nobody asks when they end
    overruns: Overruns = field(default_factory=Overruns)


def copied(state: State, used: int) -> State:
    """The tables with their first `used` rows, without what only reports need."""
    some = state._replace(
        f=state.f[:used], i=state.i[:used], attempt_of=state.attempt_of[:used],
        series=np.zeros((0, 4)), segments=np.zeros((0, 5)),
    )  # fmt: skip
    made = copy_state(some)._replace(speed=state.speed)
    made.t[col.SERIES_GAP] = made.t[col.WINDOW_FROM] = np.inf
    made.t[col.LAST_SAMPLE] = 0.0
    return made


def is_copyable(session: Session, book: Book) -> bool:
    """Whether the live tables say all that the book does, and not much that is long over."""
    few = len(session.tables) <= 1024 + _MOST_DEAD * len(session.follower.row_of)
    return few and not session.busy and not (book.touched & book.active.keys())


def take_over(session: Session, live: Session, now_s: float) -> None:
    """Write what jobs have done, as the live tables know it, into those of another policy."""
    mine, theirs, rule = session.tables.state, live.tables.state, session.engine.rule
    for job, row in session.follower.row_of.items():
        at = live.follower.row_of.get(job)
        if at is None or theirs.i[at, col.STATE] not in _PLANNED:
            continue
        mine.f[row, [col.BELIEF, col.SAVED]] = theirs.f[at, [col.BELIEF, col.SAVED]]
        mine.f[row, col.DONE] = _done_s(theirs, at, now_s)
        if mine.i[row, col.STATE] == col.WAITING:
            rekey(mine, rule, row, now_s)
        elif mine.i[row, col.STATE] in (col.RUNNING, col.PINNED) and not mine.i[row, col.PROMISED]:
            began = theirs.i[at, col.STATE] != col.WAITING and not theirs.i[at, col.PROMISED]
            mine.f[row, col.WARM] = max(float(theirs.f[at, col.WARM]), now_s) if began else now_s
            if mine.i[row, col.STATE] == col.RUNNING:
                rerun(mine, rule, row, position_of(mine.run, mine.x[col.N_RUN], row))


def copy_scene(session: Session, now_s: float) -> ForecastScene:
    """What changes when the session goes on, copied; nobody may be at work on it meanwhile."""
    engine, state = session.engine, copied(session.tables.state, len(session.tables))
    policy, rates, overruns = deepcopy(session.policy), deepcopy(engine.rates), deepcopy(engine.overruns)
    told = engine.rule, policy, engine.facts, rates, dict(session.follower.row_of)
    return ForecastScene(session.policy_name, now_s, state, *told, overruns=overruns)


def fill(scene: ForecastScene, view: BookView, beliefs: LiveBeliefs, types: dict[str, str]) -> ForecastScene:
    """Say in the scene what is believed of its jobs, by a picture of the book."""
    state, row_of = scene.state, scene.row_of
    live = {job.id: row_of[job.id] for job in view.active if job.id in row_of}
    scene.chains = _chains(view, row_of, state)
    waits = {chain.row for chain in scene.chains}
    scene.jobs = [job for job, row in live.items() if state.i[row, col.STATE] in _PLANNED or row in waits]
    scene.rows = np.array([live[job] for job in scene.jobs], np.int64)
    jobs = [view.jobs[job] for job in scene.jobs]
    scene.endless = frozenset(job.id for job in jobs if job.spec.service)
    words = beliefs.words(jobs, types)
    believed = [beliefs.duration(job, types, words=words) for job in jobs]
    scene.spread = np.array([belief.spread for belief in believed])
    scene.pace = beliefs.host_pace()
    starts = np.array([beliefs.start_doubt(job, scene.pace) for job in jobs]).reshape(-1, 2)
    scene.start_shift, scene.start_spread = starts[:, 0], starts[:, 1]
    work = np.array([work_doubt(beliefs, job, scene.pace) for job in jobs]).reshape(-1, 2)
    scene.work_shift, scene.bound = work[:, 0], work[:, 1]
    scene.whole = np.array([belief.least_s > 0 for belief in believed])
    scene.done_s = np.array([_done_s(state, row, scene.now_s) for row in scene.rows.tolist()])
    scene.left_s = np.maximum(state.f[scene.rows, col.BELIEF] - scene.done_s, _LEAST_LEFT_S)
    scene.array_of = {row: job.partition(".")[0] for job, row in live.items() if view.jobs[job].spec.array_most}
    traits = scene.policy.traits
    if traits.preemptive or traits.plans:
        stays = (state.i[scene.rows, col.RUNG] == 1) | (state.i[scene.rows, col.YIELDS] & 2 > 0)
        scene.loses = frozenset(scene.rows[~stays].tolist())
    _time_leaving(scene, {row: view.jobs[job] for job, row in live.items()}, beliefs)
    return scene


def work_doubt(beliefs: LiveBeliefs, job: LiveJob, pace: HostPace) -> tuple[float, float]:
    """Of the work that is left: by how much it is off as believed, at this pace (a logarithm), and how much of a change
    of pace it shares.

    Only steps by the profile are off: a word or history need not be of the profile's time. Steps that were seen are
    what they are.
    """
    report = beliefs.reports.of(job.id) if job.attempts else None
    if report is not None and report.speed.step_s is not None and report.speed.spread <= CLEAR:
        return 0.0, 0.0
    bound = bound_to_host(beliefs.profiles.busy(beliefs.kind(job)))
    return bound * pace.shift if report is not None and report.total else 0.0, bound


def _done_s(state: State, row: int, now_s: float) -> float:
    """Work done by now; of a pinned job as of one that runs."""
    if state.i[row, col.STATE] != col.PINNED:
        return done_by(state, row, now_s)
    since_s = max(float(state.f[row, col.WARM]), float(state.f[row, col.RATED]))
    return float(state.f[row, col.DONE] + max(now_s - since_s, 0.0) * state.f[row, col.SPEED])


def _time_leaving(scene: ForecastScene, jobs: Mapping[int, LiveJob], beliefs: LiveBeliefs) -> None:
    """Say how long it takes to leave, which live only the world can tell, and when those are gone who leave now."""
    state, now_s = scene.state, scene.now_s
    if not state.x[col.LAGS]:
        return
    for row, job in jobs.items():
        still = state.i[row, col.RUNG] == 1 or (state.x[col.ROTATES] and state.i[row, col.YIELDS] & 1)
        phases = beliefs.phases(job)
        save_s = state.f[row, col.SAVE] = phases.suspend_s if still else phases.save_s
        if not state.i[row, col.LEAVING]:
            continue
        asked_s = job.stop_asked_s if job.stop_why else now_s
        state.f[row, col.LEAVES] = max(asked_s + save_s, now_s)
        if state.i[row, col.STATE] == col.WAITING:
            schedule_wait(state, scene.rule, row)
        else:
            set_event(state, row, float(state.f[row, col.LEAVES]), col.GONE)


def _chains(view: BookView, row_of: Mapping[str, int], state: State) -> list[Chain]:
    """Pending jobs that nothing keeps but others that are under way, oldest first."""
    found = []
    for job in view.active:
        row = row_of.get(job.id)
        bound = job.state == JobState.PENDING and (job.spec.after or job.spec.array_most)
        if not bound or row is None or job.held or job.aside or job.stop_why:
            continue
        after = _after(job, view, row_of)
        if after is not None and state.i[row, col.STATE] in (col.FUTURE, col.HELD):
            found.append(Chain(row, after, job.id.partition(".")[0] if job.spec.array_most else ""))
    return found


def _after(job: LiveJob, view: BookView, row_of: Mapping[str, int]) -> frozenset[int] | None:
    """Rows of those that have to end first; None where it never can start, if all goes well."""
    rows: set[int] = set()
    for item in job.spec.after:
        how, name = dependency(item)
        for other in view.members(name):
            failed = other.finished and other.state != JobState.SUCCEEDED
            if how == FAILED or (how == OK and failed) or (not other.finished and other.id not in row_of):
                return None
            if not other.finished:
                rows.add(row_of[other.id])
    return frozenset(rows)
