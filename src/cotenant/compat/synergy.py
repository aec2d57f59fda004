"""Synergy's released simulator (OSDI'22): rounds packed from empty, whole iterations, two speeds per job."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from cotenant.allocation import Allocator
from cotenant.allocation.allocate import Allocation, Host
from cotenant.compat.base import System
from cotenant.core import columns as col
from cotenant.core.columns import DONE, END, N_RUN, RATED, SPEED, WORK
from cotenant.core.errors import InputError
from cotenant.core.jit import entry
from cotenant.core.sensitivity import RATE
from cotenant.core.state import Matrix, State
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.cycle import Engine
from cotenant.engine.heaps import drop_event, set_event
from cotenant.engine.keys import position_of
from cotenant.engine.ledger import heat
from cotenant.policies.ftf import Ftf, ratios


class SynergyQuirks(System):
    """What the authors' published runs need; `first_round_s` says when rounds begin."""

    bundle: ClassVar[dict[str, str]] = {
        "round_s": "300",
        "progress": "whole_iterations",
        "packing": "from_empty",
        "order": "policy",
        "fit": "first",
        "demand": "profile",
        "costs": "none",
    }
    single: ClassVar[dict[str, str]] = {"first_round_s": "1"}

    @property
    def packs(self) -> bool:
        """Unless only the first round was named."""
        return self.quirks.get("progress") == "whole_iterations"

    def set_up(self, allocator: Allocator) -> None:
        """Jobs in the order of the policy, each on the first server that holds it."""
        for name in ("order", "fit"):
            if name in allocator.params:
                allocator.params[name] = self.quirks[name]

    def allocation(
        self, state: State, allocator: Allocator, host: Host, work: Workload, step_s: Floats
    ) -> Allocation:  # fmt: skip
        """Rounds from the first multiple of their length on."""
        if np.isnan(step_s).any():
            model = work.model.names[work.model.code[int(np.argmax(np.isnan(step_s)))]]
            raise InputError(f"--compat synergy: the profile has no iteration time of model '{model}'")
        round_s = float(self.quirks["round_s"])
        first_s = float(np.ceil(work.submit_s[0] / round_s) * round_s) or 1.0
        return WholeIterations(
            state, allocator, host, step_s, round_s, float(self.quirks.get("first_round_s", first_s))
        )  # fmt: skip


class WholeIterations(Allocation):
    """Everything is packed anew in every round; jobs make whole iterations and end only at the end of a round."""

    blocks = False

    def __init__(
        self, state: State, allocator: Allocator, host: Host, step_s: Floats, round_s: float, first_s: float
    ) -> None:
        super().__init__(state, allocator, host)
        self.keep, self.round_s, self.origin_s, self.step_s = False, round_s, first_s, step_s
        self._made, self._piece = np.zeros(len(state.f)), np.zeros(len(state.f))
        self._demoted, self._rounds = np.zeros(len(state.f), np.bool_), np.zeros(len(state.f), np.int64)
        state.t[col.NEXT_CALL] = first_s

    def preempts(self, engine: Engine) -> bool:
        """Every lease ends with its round, under FIFO too: whoever runs has no claim to its GPUs."""
        return True

    def order(self, engine: Engine, now_s: float) -> Ints:
        """As the policy says, where that needs what was done or is left: in whole rounds and iterations."""
        state = engine.state
        settle_iterations(state, self._made, self._piece)
        rows = engine.active_rows().copy()
        if self.policy_rule.columns[0] == col.BY_REMAINING:
            return rows[np.lexsort((rows, self._left_s(state, rows)))]
        if self.policy_rule.columns[0] == col.BY_ATTAINED_GPU:
            return rows[np.lexsort((rows, self._rounds[rows] * state.i[rows, col.GPUS]))]
        if isinstance(engine.policy, Ftf):  # best off first, the opposite of Themis
            age_s = now_s - state.f[rows, col.SUBMIT]
            rho = ratios(age_s, self._left_s(state, rows), self._iterations(state, rows) * self.step_s[rows])
            return rows[np.lexsort((rows, rho))]
        kept, engine.rule = engine.rule, self.policy_rule
        try:
            return engine.order(now_s)
        finally:
            engine.rule = kept

    def _iterations(self, state: State, rows: Ints) -> Floats:
        """In all."""
        return np.asarray(np.rint(state.f[rows, col.WORK] / self.step_s[rows]))

    def _left_s(self, state: State, rows: Ints) -> Floats:
        """At the demand or, of jobs that did not get it last time, at the proportional share."""
        speed = self.host.demands[0].want[state.i[rows, col.SPEED_ROW], RATE]
        if self.allocator.name == "proportional":
            speed = np.ones(len(rows))
        left = self._iterations(state, rows) - self._made[rows]
        return np.asarray(left * self.step_s[rows] / np.where(self._demoted[rows], 1.0, speed))

    def only_admitted(self) -> bool:
        """GREEDY looks beyond the jobs admitted by GPUs, except under least attained service."""
        return bool(self.policy_rule.columns[0] == col.BY_ATTAINED_GPU)

    def set_speeds(self, engine: Engine, rows: Ints, kind: Ints, got: Matrix, want: Matrix, now_s: float) -> None:
        """Iterations of this round, at the demand or at the proportional share."""
        self._demoted[:] = False
        self._demoted[rows] = got[:, RATE] < want[:, RATE]
        self._rounds[rows] += 1
        speeds = got[:, RATE].copy()
        pace_iterations(engine.state, rows, speeds, self.step_s, self._made, self._piece, now_s, self.round_s)


@entry
def pace_iterations(
    s: State, rows: Ints, speeds: Floats, step_s: Floats, made: Floats, piece: Floats, now: float, round_s: float
) -> None:
    """One round: whole iterations, and the end only at the end of a round.

    `made` are iterations done before this round and `piece` those of the round that just began, both per job of the
    workload; `speeds` are those of the running jobs in `rows`.
    """
    for k in range(len(rows)):
        job = rows[k]
        each = step_s[job]
        gain = math.floor(round_s / (each / speeds[k]))
        piece[job] = gain
        left = round(s.f[job, WORK] / each) - made[job]
        s.f[job, DONE] = min(made[job] * each, s.f[job, WORK])
        s.f[job, RATED] = now
        s.f[job, SPEED] = min(gain, left) * each / round_s
        heat(s.f, s.i, s.slices, s.hot, s.x, job, position_of(s.run, s.x[N_RUN], job))
        if gain >= left:
            set_event(s, job, now + round_s, END)
        else:
            drop_event(s, job)


@entry
def settle_iterations(s: State, made: Floats, piece: Floats) -> None:
    """A round is over: what running jobs were to make in it is made."""
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0:
            made[job] += piece[job]
            piece[job] = 0.0
