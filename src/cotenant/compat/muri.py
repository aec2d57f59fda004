"""Muri's released simulator (SIGCOMM'22): its baselines, its durations and the start-up that it charges at every event.

FIFO, SRTF and SRSF place everything anew on an empty cluster at each event; Tiresias has three queues and counts GPUs
without nodes. Where a job sits has no effect there, so the engine may keep it where it is.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from cotenant.beliefs.company import StageSpeeds
from cotenant.compat.base import Speeds, System
from cotenant.core.columns import DONE, RATED, SPEED, WORK
from cotenant.core.jit import entry
from cotenant.core.plan import Plan, Pools, Why
from cotenant.core.stages import Stages
from cotenant.core.state import Rule, State
from cotenant.core.traits import Traits
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import RateModel, restart
from cotenant.policies.base import Context, PlanPolicy, Policy
from cotenant.policies.muri.admission import FirstFit
from cotenant.workload.stages import iteration_durations


class MuriQuirks(System):
    """Whatever of it is named, the whole simulator is played."""

    bundle: ClassVar[dict[str, str]] = {
        "progress": "startup_at_every_event",
        "durations": "iterations",
        "memory": "none",
        "costs": "none",
    }
    single = bundle

    def policy(self, policy: Policy) -> Policy:
        """The same policy as the released simulator plays it; itself where that has none of the kind."""
        twin = _TWINS.get(policy.name)
        return policy if twin is None else twin()

    def workload(self, work: Workload) -> Workload:
        """Durations are whole iterations."""
        return iteration_durations(work)

    def looks_at_memory(self) -> bool:
        """It does not."""
        return False

    def rates(self, stages: Stages | None, traits: Traits, round_s: float, shared: Speeds | None) -> RateModel | None:
        """A start-up lost at every event."""
        return None if stages is None else ReleasedStages(stages)


class _Released(PlanPolicy):
    """Jobs in order on an empty cluster; whoever does not fit is skipped."""

    names_pools = True
    pair_belief = "oracle"
    strict: bool = False

    def order_value(self, view: View) -> Floats:
        """Smaller comes first."""
        return view.submit_s

    def decide(self, view: View) -> Plan:
        """The first ones that fit."""
        room, pools = FirstFit(view.site.node, view.site.pool), view.open_pools
        chosen: list[tuple[int, int]] = []
        for at in np.lexsort((view.rows, self.order_value(view))).tolist():
            pool = room.take(int(view.gpus[at]), int(pools[at]))
            if pool >= 0:
                chosen.append((int(view.rows[at]), pool))
            elif self.strict:
                break
            if not any(room.left):
                break
        return _in_pools(view, chosen)


class ReleasedFifo(_Released):
    """Submit order; the first that does not fit blocks the rest."""

    strict = True


class ReleasedSrtf(_Released):
    """Shortest remaining time first."""

    def order_value(self, view: View) -> Floats:
        """Remaining seconds."""
        return view.remaining_s


class ReleasedSrsf(_Released):
    """Shortest remaining GPU time first."""

    def order_value(self, view: View) -> Floats:
        """Remaining GPU-seconds."""
        return view.remaining_s * view.gpus


class ReleasedTiresias(_Released):
    """Three queues by running time, in order of arrival there, running jobs ahead; GPUs counted without nodes."""

    limits_gpu_s: ClassVar[tuple[float, ...]] = (3250.0, 7200.0)

    def begin(self, context: Context) -> None:
        """Queues are kept as lists from event to event."""
        self._queues: list[list[int]] = [[] for _ in range(len(self.limits_gpu_s) + 1)]
        self._seen: set[int] = set()

    def decide(self, view: View) -> Plan:
        """Demote, walk the queues, put running jobs first in each."""
        gpus = dict(zip(view.rows.tolist(), view.gpus.tolist(), strict=True))
        ran_s = dict(zip(view.rows.tolist(), view.attained_s.tolist(), strict=True))
        new = sorted(row for row in gpus if row not in self._seen)
        self._seen.update(new)
        self._queues[0] += new
        for at, limit in enumerate(self.limits_gpu_s):
            past = [job for job in self._queues[at] if job in gpus and ran_s[job] * gpus[job] >= limit]
            self._queues[at] = [job for job in self._queues[at] if job in gpus and job not in past]
            self._queues[at + 1] += past
        self._queues[-1] = [job for job in self._queues[-1] if job in gpus]
        left = view.cluster_gpus
        chosen: list[int] = []
        next_s = math.inf
        for at, queue in enumerate(self._queues):
            ran: list[int] = []
            for job in queue:
                if gpus[job] <= left:
                    left -= gpus[job]
                    ran.append(job)
                    if at < len(self.limits_gpu_s):
                        wait = math.ceil(self.limits_gpu_s[at] / gpus[job]) - ran_s[job]
                        next_s = min(next_s, view.now_s + wait)
            running = set(ran)
            queue.sort(key=lambda job: job not in running)
            chosen += ran
        return _in_pools(view, [(job, 0) for job in chosen], next_s)


def _in_pools(view: View, chosen: list[tuple[int, int]], next_s: float = math.inf) -> Plan:
    table = np.array(chosen, np.int64).reshape(-1, 2)
    pools = Pools(table[:, 0], table[:, 1], np.full(len(table), -1, np.int64))
    return Plan(pools=pools, next_s=next_s, why=_answers(view.rows, view.gpus, len(table)))


def _answers(rows: Ints, gpus: Ints, chosen: int) -> Why:
    def why(row: int) -> str:
        gang = gpus[np.flatnonzero(rows == row)[0]]
        return f"it needs {gang} GPUs, and the {chosen} jobs that were placed before it on an empty cluster leave fewer"

    return why


_TWINS: dict[str, type[_Released]] = {
    "fifo": ReleasedFifo,
    "srtf": ReleasedSrtf,
    "srsf": ReleasedSrsf,
    "tiresias-l": ReleasedTiresias,
}


class ReleasedStages(StageSpeeds):
    """The released simulator: at every event each running job loses the start-up time of its group once more.

    Its next end is planned as if that would not happen again; both are a slip that its published figures contain.
    """

    def __init__(self, stages: Stages) -> None:
        super().__init__(stages)
        self._start_s: dict[int, float] = {}

    def settle(self, state: State, now_s: float) -> None:
        """Progress since the last event: the time that passed, less a start-up."""
        rows = running_rows(state)
        lost = np.array([self._start_s.get(row, 0.0) for row in rows.tolist()])
        lose_time(state, rows, lost, now_s)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody."""
        rows = running_rows(state)
        jobs: list[int] = []
        speeds: list[float] = []
        self._start_s = {}
        for members in self.groups(state, rows):
            jobs += members
            speeds += self.speed(state, members)
            cost = float(self.stages.start_s[self.stages.of[members]].sum())
            self._start_s.update(dict.fromkeys(members, cost))
        restart(state, rule, np.array(jobs, np.int64), np.array(speeds), np.zeros(len(jobs)), now_s)


@entry
def lose_time(s: State, jobs: Ints, seconds: Floats, now: float) -> None:
    """Of the time since these jobs were last rated, this many seconds made no progress."""
    for k in range(len(jobs)):
        job = jobs[k]
        useful = max(now - s.f[job, RATED] - seconds[k], 0.0)
        s.f[job, DONE] = min(s.f[job, DONE] + useful * s.f[job, SPEED], s.f[job, WORK])
        s.f[job, RATED] = now
