"""Philly, Microsoft's scheduler of 2017, as its study describes it (Jeon et al., ATC'19, sections 2 and 3).

Tenants are virtual clusters with quotas; what one does not use is lent. A gang that finds no sufficiently local GPUs
holds what it finds, times out, backs off and tries again, with less locality after some retries. Order inside a queue,
the order of relaxing, retries before it and who is preempted are our choice where the paper is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.outcome import Scalar
from cotenant.core.plan import Plan
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.philly.delays import Delays
from cotenant.policies.philly.laying import NO_LIMIT, Board, scene_of
from cotenant.policies.philly.memory import Tries
from cotenant.policies.philly.step import step
from cotenant.policies.philly.tables import (
    N_HARMFUL,
    N_OUT_OF_ORDER,
    N_PAST_LARGE,
    N_STARTED,
    N_STARTS,
    N_VICTIMS,
    RESERVE,
    RUN_ROW,
    WAYS,
    Situation,
    Timing,
    Workspace,
)
from cotenant.policies.philly.words import WaitingWords


class Philly(PlanPolicy):
    """Quotas per tenant, lent and taken back; gangs hold GPUs for locality, time out, back off, and relax it."""

    name = "philly"
    source = "Philly, ATC'19"
    own_shares = True
    defaults: ClassVar[dict[str, Value]] = {
        "timeout": 150.0,  # seconds that an attempt may hold GPUs; stated as 2 to 3 minutes
        "backoff": 120.0,  # stated
        "retries": 3,  # before locality is relaxed, one step at a time; our choice
        "threshold": 0.9,  # part of the GPUs in use from which on tenants preempt each other; stated
        "heartbeat": 0.0,  # time-outs are looked at on multiples of so many seconds; 0: when they are
        "rack_nodes": 0,  # nodes of a rack, in the order of the cluster; 0: every pool is one rack
        "wait": "hold",  # or none: nobody holds GPUs; reserve: the first who waits has a place reserved
    }

    def begin(self, context: Context) -> None:
        """Nobody has tried yet."""
        for name, least in (
            ("timeout", 1e-3),
            ("backoff", 0.0),
            ("retries", 0.0),
            ("rack_nodes", 0.0),
            ("heartbeat", 0.0),
        ):
            if not self.number(name) >= least:
                raise InputError(f"policy '{self.name}': {name}={self.params[name]} must be {least:g} or more")
        if not self.number("threshold") >= 0:
            raise InputError(f"policy '{self.name}': threshold={self.params['threshold']} must not be negative")
        if self.params["wait"] not in WAYS:
            raise InputError(f"policy '{self.name}': wait={self.params['wait']} must be one of {', '.join(WAYS)}")
        timeout_s, backoff_s, threshold = (self.number(name) for name in ("timeout", "backoff", "threshold"))
        retries, way = int(self.number("retries")), WAYS[str(self.params["wait"])]
        self.options = Timing(timeout_s, backoff_s, threshold, retries, way)
        self.delays, self._kept, self._board = Delays(), Tries(), Board(int(self.number("rack_nodes")))
        self._held_gpu_s, self._now_s = 0.0, np.nan

    def decide(self, view: View) -> Plan:
        """Who starts and who leaves; everybody else goes on."""
        self._pass_to(view.now_s)
        waiting = ~view.running
        if not waiting.any():
            self._kept.forget_holds()
            self.delays.decided(view.rows[waiting], view.gpus[waiting], waiting[waiting])
            return Plan(keep=True)
        quota = quotas(view)
        memory = self._kept.tables(view)
        scene = scene_of(view, waiting, quota, self._board, ends=self.options.way == RESERVE)
        memory.at[scene.row] = np.arange(len(scene.row))
        scratch = self._board.scratch(view, scene)
        started = np.zeros(len(scene.row), np.int64)
        step(scene, self.options, memory, scratch, started)
        return self._plan(scene, scratch, started, quota)

    def _plan(self, scene: Situation, scratch: Workspace, started: Ints, quota: Floats) -> Plan:
        run = {}
        for job, first, end in scratch.started[: scratch.marks[N_STARTED]].tolist():
            pieces = scratch.places[first:end].tolist()
            run[int(scene.row[job])] = tuple(sorted((node, gpus) for node, gpus in pieces))
        left = scene.runs[scratch.victims[: scratch.marks[N_VICTIMS]]]
        rest = started == 0
        rows = np.concatenate([scene.row[rest], left[:, RUN_ROW]])
        gpus = np.concatenate([scene.gpus[rest], left[:, 2]])
        tenant = np.concatenate([scene.tenant[rest], left[:, 1]])
        used, limit = scratch.used[tenant], scratch.limit[tenant]
        self.delays.decided(rows, gpus, (used >= quota[tenant]) | (used + gpus > limit))
        standing = WaitingWords.of(
            self.options, scene.now_s, rows, gpus, scratch.used[tenant], quota[tenant], limit, self._kept, scratch.marks
        )
        next_s, beat_s = float(scratch.until_s[0]), self.number("heartbeat")
        if beat_s > 0 and np.isfinite(next_s):
            next_s = float(np.ceil(next_s / beat_s)) * beat_s
        return Plan(run, keep=True, stop=frozenset(left[:, RUN_ROW].tolist()), next_s=next_s, why=standing.why)

    def _pass_to(self, now_s: float) -> None:
        """What has been waited for and held since the last decision."""
        self.delays.pass_to(now_s)
        if now_s > self._now_s:
            self._held_gpu_s += self._kept.held_gpus * (now_s - self._now_s)
        self._now_s = now_s

    # -- what is told ------------------------------------------------------------------------------------------

    def remember(self) -> dict[tuple[int, ...], Any]:
        """When who began to try, and what it holds."""
        return self._kept.remember()

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:
        """The same, after a restart."""
        self._kept.recall(kept)

    def figures(self) -> dict[str, Scalar]:
        """Delays by class and size, GPU time held idle, and overtaking."""
        counts = self._kept.counts
        return {
            **self.delays.figures(),
            "held_idle_gpu_s": self._held_gpu_s,
            "starts": int(counts[N_STARTS]),
            "starts_out_of_order": int(counts[N_OUT_OF_ORDER]),
            "starts_past_large": int(counts[N_PAST_LARGE]),
            "starts_past_large_harmful": int(counts[N_HARMFUL]),
        }

    def story(self) -> str:
        """What waiting cost, in one line."""
        counts = self._kept.counts
        return (
            f"{self._held_gpu_s / 3600:,.1f} GPU-hours held idle for locality;"
            f" {counts[N_OUT_OF_ORDER]:,} of {counts[N_STARTS]:,} starts out of order"
        )


def quotas(view: View) -> Floats:
    """GPUs of each tenant: what it is guaranteed; those of whom nothing is said have equal parts of the rest."""
    quota = view.site.quota[:, col.Q_GUARANTEED].astype(np.float64)
    open_ = quota >= NO_LIMIT
    if open_.any():
        sharing = int(open_[np.unique(view.tenant)].sum())
        rest = max(view.cluster_gpus - float(quota[~open_].sum()), 0.0)
        quota[open_] = rest / max(sharing, 1)
    return quota
