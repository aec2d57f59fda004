"""One play of a scene in the simulator: who ends when, if jobs take as long as drawn and nobody else arrives.

The engine decides as it does live. Leaving GPUs, starting, restoring and standing still take what is believed of them,
jobs take turns, pairs go at the speed of their company, and whoever waits for others starts when those have ended.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.state import State
from cotenant.core.workload import Floats
from cotenant.engine.cycle import Engine, Fixed
from cotenant.engine.events import arrive, begin_step, next_own_time, rekey, wants_decision
from cotenant.engine.ledger import schedule_run
from cotenant.engine.rates import RateModel
from cotenant.engine.taking_in import take_in
from cotenant.service.planner.memory import told
from cotenant.service.planner.scene import Chain, ForecastScene, copied
from cotenant.sim import loop
from cotenant.sim.stall import Stall

_LOOK_EVENTS = 500  # between two looks at the clock


@dataclass(slots=True)
class Drawn:
    """What is drawn for one play, by place in `ForecastScene.rows`: work that is left, factors of start-ups."""

    left_s: Floats
    start: Floats
    rates: RateModel | None = None  # None: as believed


@dataclass(slots=True)
class _Waiting:
    """Who starts when others have ended."""

    after: dict[int, set[int]] = field(default_factory=dict)
    arrays: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    ended: set[int] = field(default_factory=set)

    def add(self, chain: Chain) -> None:
        if chain.after:
            self.after[chain.row] = set(chain.after)
        if chain.array:
            self.arrays[chain.array].append(chain.row)

    def come(self, ended: list[int], arrays: list[str]) -> list[int]:
        """Who need not wait any longer now that these, of these arrays, have ended."""
        self.ended.update(ended)
        free = []
        for row in list(self.after):
            self.after[row].difference_update(ended)
            if not self.after[row]:
                del self.after[row]
                free += [] if any(row in line for line in self.arrays.values()) else [row]
        for array in arrays:
            line = self.arrays.get(array, [])
            first = next((row for row in line if row not in self.after), None)
            if first is not None:
                line.remove(first)
                free.append(first)
        return free


class Player:
    """Plays one scene again and again. `told` hears how many jobs have ended, and says whether to go on."""

    def __init__(self, scene: ForecastScene, told: Callable[[int], bool] = lambda done: True) -> None:
        self._scene, self._told = scene, told
        self._tables = Fixed(scene.state)
        self._engine = Engine(self._tables, scene.policy, scene.rule, scene.facts, scene.rates)
        self.took_s = 0.0
        self.first_s: Floats = np.zeros(0)  # when each job of the scene first had GPUs in the last play
        self.answers: dict[str, Any] | None = None  # what the policy told jobs with deadlines at its first decision

    def play(self, drawn: Drawn) -> tuple[Floats, bool]:
        """When each job of the scene ends, NaN where that is not known; whether it came to its end in time."""
        began_s, scene = time.monotonic(), self._scene
        state = self._tables.state = copied(scene.state, len(scene.state.f))
        self._engine.policy, self._engine.overruns = deepcopy(scene.policy), deepcopy(scene.overruns)
        self._engine.rates = deepcopy(scene.rates) if drawn.rates is None else drawn.rates
        pinned = self._prepare(state, drawn)
        whole = self._run(state, pinned)
        self.took_s = time.monotonic() - began_s
        self.first_s = state.f[scene.rows, col.FIRST].copy()
        return state.f[scene.rows, col.FINISH].copy(), whole

    def _prepare(self, state: State, drawn: Drawn) -> list[tuple[float, int]]:
        """Let jobs take as long as drawn; when those end with whom nobody plans, the last of them first."""
        scene, f, i, now_s = self._scene, state.f, state.i, self._scene.now_s
        f[scene.rows, col.START_UP] *= drawn.start
        f[scene.rows, col.WORK] = scene.done_s + drawn.left_s
        state.x[col.LOGGING] = state.x[col.N_LOG] = 0
        state.x[col.NEXT_ARRIVAL], state.x[col.MEASURE_FROM], state.x[col.MEASURE_TO] = len(f), 0, len(f)
        state.x[col.N_MEASURED_LEFT] = len(scene.rows)
        pinned = []
        for at, row in enumerate(scene.rows.tolist()):
            if i[row, col.STATE] == col.RUNNING:
                schedule_run(state, self._engine.rule, row)
            elif i[row, col.STATE] == col.PINNED:
                warm_s = max(float(f[row, col.WARM]) - now_s, 0.0)
                took_s = warm_s + drawn.left_s[at] / max(float(f[row, col.SPEED]), 1e-9)
                pinned.append((now_s + float(took_s), row))
        return sorted(pinned, reverse=True)

    def _run(self, state: State, pinned: list[tuple[float, int]]) -> bool:
        """Whether it came to its end in time."""
        scene, waiting = self._scene, _Waiting()
        for chain in scene.chains:
            waiting.add(chain)
        go_on = self._step if scene.chains or scene.loses else self._many_steps
        begin_step(state, self._engine.rule, scene.now_s)
        state.x[col.DIRTY] = 1
        self._cycle(scene.now_s)
        if self.answers is None:
            job_at = {row: job for job, row in scene.row_of.items()}
            self.answers = told(self._engine.policy, scene.name, job_at)
        stall = Stall(state)
        while state.x[col.N_MEASURED_LEFT] > 0:
            until_s = pinned[-1][0] if pinned else np.inf
            if not go_on(state, waiting, until_s):
                if not pinned:
                    return True
                self._end_pinned(state, pinned.pop()[1], waiting, until_s)
            if stall.at() >= 0:  # jobs stop each other before they have restored: whoever is left has no finish
                return True
            if not self._told(len(scene.rows) - int(state.x[col.N_MEASURED_LEFT])):
                return False
        return True

    def _many_steps(self, state: State, waiting: _Waiting, until_s: float) -> bool:
        """Let happen what does not need Python, and then what does; whether anything was left to happen before then."""
        code = loop.run(state, self._engine.rule, np.zeros((0, 3)), np.inf, until_s, _LOOK_EVENTS)
        if code == loop.NEEDS_DECISION:
            self._cycle(float(state.t[col.NOW]))
        elif code == loop.NEEDS_TURNS:
            self._engine.settle(float(state.t[col.NOW]))
        return bool(code in (loop.NEEDS_DECISION, loop.NEEDS_TURNS, loop.PAUSED))

    def _step(self, state: State, waiting: _Waiting, until_s: float) -> bool:
        """The same of one moment, with what follows from it for others, as the service does."""
        rule, now_s = self._engine.rule, float(next_own_time(state, self._engine.rule))
        if now_s > until_s or now_s == np.inf:
            return False
        begin_step(state, rule, now_s)
        if self._let_come(state, waiting, now_s) or wants_decision(state, rule, now_s):
            self._engine.decide(now_s)
        self._engine.settle(now_s)
        loop.settle_decision(state, now_s)
        self._lose(state, now_s)
        return True

    def _cycle(self, now_s: float) -> None:
        self._engine.cycle(now_s)
        loop.settle_decision(self._tables.state, now_s)

    def _end_pinned(self, state: State, row: int, waiting: _Waiting, now_s: float) -> None:
        """Somebody with whom nobody plans has come to its end."""
        begin_step(state, self._engine.rule, now_s)
        take_in(state, self._engine.rule, Event(Kind.OVER, row), now_s)
        state.f[row, col.FINISH], state.i[row, col.STATE] = now_s, col.FINISHED
        state.x[col.N_MEASURED_LEFT] -= 1
        self._let_come(state, waiting, now_s)
        self._cycle(now_s)

    def _lose(self, state: State, now_s: float) -> None:
        """Whoever cannot save and was told to leave has lost what it did since its start."""
        f, i = state.f, state.i
        for row in self._scene.loses:
            if i[row, col.LEAVING] == 1 and i[row, col.HOME] < 0 and f[row, col.DONE] > f[row, col.SAVED]:
                f[row, col.DONE], i[row, col.OWES] = f[row, col.SAVED], int(f[row, col.SAVED] > 0)
                if i[row, col.STATE] == col.WAITING:
                    rekey(state, self._engine.rule, row, now_s)

    def _let_come(self, state: State, waiting: _Waiting, now_s: float) -> bool:
        """Let those wait for GPUs who waited for others that have ended; whether there are any."""
        scene = self._scene
        if not scene.chains:
            return False
        rows = scene.rows[state.i[scene.rows, col.STATE] == col.FINISHED].tolist()
        ended = [row for row in rows if row not in waiting.ended]
        come = waiting.come(ended, [scene.array_of.get(row, "") for row in ended])
        for row in come:
            arrive(state, self._engine.rule, row, now_s)
        return bool(come)
