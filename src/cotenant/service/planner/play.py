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

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.state import State
from cotenant.core.workload import Floats
from cotenant.engine.cycle import Engine, Fixed
from cotenant.engine.events import arrive, begin_step, rekey
from cotenant.engine.ledger import schedule_run
from cotenant.engine.rates import RateModel
from cotenant.engine.taking_in import take_in
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


class Player:
    """Plays one scene again and again. `told` hears how many jobs have ended, and says whether to go on."""

    def __init__(self, scene: ForecastScene, told: Callable[[int], bool] = lambda done: True) -> None:
        self._scene, self._told = scene, told
        self._tables = Fixed(scene.state)
        self._engine = Engine(self._tables, scene.policy, scene.rule, scene.facts, scene.rates)
        self.took_s = 0.0

    def play(self, drawn: Drawn) -> tuple[Floats, bool]:
        """When each job of the scene ends, NaN where that is not known; whether it came to its end in time."""
        began_s, scene = time.monotonic(), self._scene
        state = self._tables.state = copied(scene.state, len(scene.state.f))
        self._engine.policy = deepcopy(scene.policy)
        self._engine.rates = deepcopy(scene.rates) if drawn.rates is None else drawn.rates
        pinned = self._prepare(state, drawn)
        whole = self._run(state, pinned)
        self.took_s = time.monotonic() - began_s
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
                schedule_run(f, i, state.events, state.x, self._engine.rule.thresholds, row)
            elif i[row, col.STATE] == col.PINNED:
                warm_s = max(float(f[row, col.WARM]) - now_s, 0.0)
                took_s = warm_s + drawn.left_s[at] / max(float(f[row, col.SPEED]), 1e-9)
                pinned.append((now_s + float(took_s), row))
        return sorted(pinned, reverse=True)

    def _run(self, state: State, pinned: list[tuple[float, int]]) -> bool:
        """Whether it came to its end in time."""
        scene, engine, waiting = self._scene, self._engine, _Waiting()
        for chain in scene.chains:
            waiting.add(chain)
        one_by_one = bool(scene.chains or scene.loses)
        begin_step(state, engine.rule, scene.now_s)
        state.x[col.DIRTY] = 1
        self._cycle(scene.now_s)
        none, stall = np.zeros((0, 3)), Stall(state)
        while True:
            until_s = pinned[-1][0] if pinned else np.inf
            code = loop.run(state, engine.rule, none, np.inf, until_s, 1 if one_by_one else _LOOK_EVENTS)
            now_s = float(state.t[col.NOW])
            if code == loop.NEEDS_DECISION:
                self._cycle(now_s)
            elif code == loop.NEEDS_TURNS:
                engine.settle(now_s)
            elif code in (loop.REACHED_UNTIL, loop.STUCK) and pinned:
                now_s, row = pinned.pop()
                self._end_pinned(state, row, now_s)
                self._cycle(now_s)
            elif code != loop.PAUSED:
                return True
            if one_by_one and self._follow(state, waiting, now_s):
                self._cycle(now_s)
            if stall.at() >= 0:  # jobs stop each other before they have restored: whoever is left has no finish
                return True
            if not self._told(len(scene.rows) - int(state.x[col.N_MEASURED_LEFT])):
                return False

    def _cycle(self, now_s: float) -> None:
        self._engine.cycle(now_s)
        loop.settle_decision(self._tables.state, now_s)

    def _end_pinned(self, state: State, row: int, now_s: float) -> None:
        state.t[col.NOW] = now_s
        take_in(state, self._engine.rule, Event(Kind.OVER, row), now_s)
        state.f[row, col.FINISH], state.i[row, col.STATE] = now_s, col.FINISHED
        state.x[col.N_MEASURED_LEFT] -= 1

    def _follow(self, state: State, waiting: _Waiting, now_s: float) -> bool:
        """What follows from what has just happened; whether anybody has come to wait for GPUs."""
        f, i, scene = state.f, state.i, self._scene
        for row in scene.loses:
            if i[row, col.LEAVING] == 1 and i[row, col.HOME] < 0 and f[row, col.DONE] > f[row, col.SAVED]:
                f[row, col.DONE], i[row, col.OWES] = f[row, col.SAVED], int(f[row, col.SAVED] > 0)
                if i[row, col.STATE] == col.WAITING:
                    rekey(state, self._engine.rule, row, now_s)
        if not scene.chains:
            return False
        rows = scene.rows[i[scene.rows, col.STATE] == col.FINISHED].tolist()
        ended = [row for row in rows if row not in waiting.ended]
        waiting.ended.update(ended)
        come = []
        for row in list(waiting.after):
            waiting.after[row].difference_update(ended)
            if not waiting.after[row]:
                del waiting.after[row]
                if not any(row in line for line in waiting.arrays.values()):
                    come.append(row)
        for row in ended:
            line = waiting.arrays.get(scene.array_of.get(row, ""), [])
            free = next((one for one in line if one not in waiting.after), None)
            if free is not None:
                line.remove(free)
                come.append(free)
        for row in come:
            arrive(state, self._engine.rule, row, now_s)
        return bool(come)
