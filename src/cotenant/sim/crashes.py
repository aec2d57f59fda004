"""Parts of a running job, and of the platform, that crash and come back (`--crash ffdl`): the model of FfDL.

A job is a learner per node, one helper (loads, stores, collects logs) and one monitor (knows how it stands); the
service takes submissions and launches. Whoever crashes is restarted, and only what it does stops meanwhile (FfDL,
Middleware'19):

* a learner: the gang stands still, where it is, and goes on from its last checkpoint;
* the helper, the monitor: logs and states are late, the job goes on;
* the service: nothing is submitted or launched, what runs goes on;
* a node: as `--fail-nodes` has it.

Times to recover are those reported of FfDL. How often something crashes is ours, in round numbers: the frequencies of
the paper are not public in a form that could be checked.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError, unknown
from cotenant.core.outcome import Scalar
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.state import State
from cotenant.engine.cycle import Engine
from cotenant.engine.events import arrive, begin_step, next_own_time, node_down, node_up
from cotenant.engine.observe import running_rows, walk_slices
from cotenant.engine.rates import restart
from cotenant.sim import loop
from cotenant.sim.failures import Outages

DAY_S = 86_400.0
RECOVERY_S = {"learner": (10.0, 20.0), "helper": (3.0, 4.0), "monitor": (1.0, 2.0), "service": (4.0, 6.0)}
"""Part -> shortest and longest time until it is back: the table of FfDL, as recalled; its service is API and LCM."""
DEFAULTS: dict[str, Value] = {
    "learner": 10 * DAY_S,  # mean time between crashes of each; inf: never
    "helper": 10 * DAY_S,
    "monitor": 10 * DAY_S,
    "service": 10 * DAY_S,
    "node": 60 * DAY_S,
    "repair": 3600.0,  # of a node
    "checkpoint": 1800.0,  # seconds of work between two
}


@dataclass(frozen=True, slots=True)
class CrashRates:
    """What was asked for, in seconds."""

    between_s: dict[str, float]
    node_s: float
    repair_s: float
    checkpoint_s: float

    @classmethod
    def parse(cls, text: str) -> CrashRates:
        """`ffdl`, `ffdl:learner=86400,checkpoint=600`."""
        spec = Spec.parse(text)
        if spec.name != "ffdl":
            raise unknown("--crash", spec.name, ("ffdl",))
        values = {name: float(str(value)) for name, value in typed_params(spec, DEFAULTS, "crash").items()}
        wrong = [name for name, value in values.items() if not value > 0]
        if wrong:
            raise InputError(f"--crash '{text}': {wrong[0]}={values[wrong[0]]:g} must be above 0 seconds")
        between_s = {name: values[name] for name in RECOVERY_S}
        return cls(between_s, values["node"], values["repair"], values["checkpoint"])

    @property
    def nodes(self) -> str | None:
        """How nodes fail, as `--fail-nodes` has it."""
        if self.node_s == math.inf:
            return None
        return f"mtbf={self.node_s:g},mttr={self.repair_s:g},checkpoint={self.checkpoint_s:g}"


class Crashes:
    """Who crashes when. The driver calls `at` at `next_s`.

    Every node has a stream of its own for each part, with a moment for each of its places: whoever sits in that place
    then crashes. So the draws do not depend on the policy.
    """

    def __init__(self, rates: CrashRates, state: State, outages: Outages, start_s: float, seed: int) -> None:
        self.rates, self.outages = rates, outages
        self.count = dict.fromkeys(RECOVERY_S, 0)
        self.down_s = dict.fromkeys(RECOVERY_S, 0.0)
        self.redone_gpu_s = 0.0
        self._places = state.gpu.shape[1] if state.x[col.SHARING] else 1
        self._draws: dict[tuple[str, int], np.random.Generator] = {}
        self.due: list[tuple[float, str, int]] = []  # a heap of (when, part, node)
        for number, part in enumerate(RECOVERY_S):
            for node in range(len(state.node) if part != "service" else 1):
                self._draws[part, node] = np.random.default_rng([seed, 6947, number, node])
                self._draw(state, start_s, part, node)

    @property
    def next_s(self) -> float:
        """When something may crash next."""
        return self.due[0][0] if self.due else math.inf

    def at(self, engine: Engine, now_s: float) -> None:
        """What crashes now, if somebody sits there."""
        _, part, node = heapq.heappop(self.due)
        draw = self._draws[part, node]
        down_s = float(draw.uniform(*RECOVERY_S[part]))
        place = int(draw.integers(self._most(engine.state, part, node)))
        if part == "service":
            self._note(part, down_s)
            self._hold(engine, now_s + down_s)
        else:
            jobs = _jobs_on(engine.state, node, whole=part == "learner")
            if place < len(jobs):
                self._note(part, down_s)
                if part == "learner":
                    self._stand_still(engine, jobs[place], now_s, down_s)
        self._draw(engine.state, max(now_s, float(engine.state.t[col.NOW])), part, node)

    def summary(self) -> dict[str, Scalar]:
        """The figures of a run."""
        return {
            **{f"crashes_{part}": count for part, count in self.count.items()},
            **{f"down_{part}_s": seconds for part, seconds in self.down_s.items()},
            "redone_gpu_s": self.redone_gpu_s,
        }

    def _note(self, part: str, down_s: float) -> None:
        self.count[part] += 1
        self.down_s[part] += down_s

    def _most(self, state: State, part: str, node: int) -> int:
        return 1 if part == "service" else int(state.node[node, col.NODE_SIZE]) * self._places

    def _draw(self, state: State, now_s: float, part: str, node: int) -> None:
        if self.rates.between_s[part] < math.inf:
            mean_s = self.rates.between_s[part] / self._most(state, part, node)
            heapq.heappush(self.due, (now_s + float(self._draws[part, node].exponential(mean_s)), part, node))

    def _stand_still(self, engine: Engine, job: int, now_s: float, down_s: float) -> None:
        """A learner is gone: back to the last checkpoint, and no progress until it is there again."""
        state, rows = engine.state, np.array([job], np.int64)
        speed = state.f[rows, col.SPEED].copy()
        restart(state, engine.rule, rows, speed, np.zeros(1), now_s)  # books what was done until now
        every_s, done = self.rates.checkpoint_s, float(state.f[job, col.DONE])
        kept, attempt = math.floor(done / every_s) * every_s, int(state.i[job, col.ATTEMPT])
        if attempt > 0:
            kept = max(kept, float(state.attempts[state.attempt_of[job, 0] + attempt - 1, 0]))
        redone = (done - kept) * float(state.i[job, col.GPUS])
        self.redone_gpu_s += redone
        state.f[job, col.LOST] += redone
        state.f[job, col.DONE] = kept
        restoring_s = max(float(state.f[job, col.WARM]) - now_s, 0.0)
        restart(state, engine.rule, rows, speed, np.array([restoring_s + down_s]), now_s)

    def _hold(self, engine: Engine, until_s: float) -> None:
        """Nobody decides until then: jobs end and nodes fail by themselves, submissions wait at the door."""
        state, rule = engine.state, engine.rule
        while self.outages.horizon_s < until_s:
            self.outages.extend()
        table = self.outages.table
        while True:
            row = int(state.x[col.NEXT_OUTAGE])
            outage_s = float(table[row, loop.OUTAGE_TIME]) if row < len(table) else math.inf
            time_s = min(next_own_time(state, rule), outage_s, until_s)
            begin_step(state, rule, time_s)
            if outage_s <= time_s:
                node = int(table[row, loop.OUTAGE_NODE])
                if table[row, loop.OUTAGE_UP] > 0:
                    node_up(state, node)
                else:
                    node_down(state, rule, node, time_s)
                state.x[col.NEXT_OUTAGE] += 1
            elif time_s >= until_s:
                break
            else:
                engine.settle(time_s)
        first = int(state.x[col.NEXT_ARRIVAL])
        last = first + int(np.searchsorted(state.f[first:, col.SUBMIT], until_s, side="right"))
        for row in range(first, last):
            state.x[col.NEXT_ARRIVAL] = row + 1
            arrive(state, rule, row, float(state.f[row, col.SUBMIT]))  # whoever is at the door waits since then
        state.x[col.DIRTY] = 1
        engine.cycle(until_s)
        loop.settle_decision(state, until_s)


def _jobs_on(state: State, node: int, whole: bool) -> list[int]:
    """Jobs with a learner on a node, by row; without `whole` those whose first learner is there."""
    found = []
    for job in np.sort(running_rows(state)).tolist():
        nodes = [place[0] for place in walk_slices(state, int(state.i[job, col.SLICE]))]
        if state.i[job, col.PROMISED] == 0 and node in (nodes if whole else nodes[:1]):
            found.append(job)
    return found
