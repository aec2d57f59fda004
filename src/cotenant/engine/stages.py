"""Rates of jobs that interleave their stages: every member of a group makes one iteration per cycle."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cycles import Cycles
from cotenant.core.stages import Stages
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import restart


class StageTruth:
    """Jobs on the same GPUs move in lock step; a group that somebody joins starts anew, and everybody pays for it.

    What a start costs is the engine's price of restoring, summed over the members: one process holds them all.
    """

    def __init__(self, stages: Stages) -> None:
        self.stages, self.cycles = stages, Cycles(stages)
        self._company: dict[int, frozenset[int]] = {}

    def groups(self, state: State, rows: Ints) -> list[list[int]]:
        """Running jobs by the GPUs they sit on."""
        host = state.i[rows, col.HOST]
        leader = np.where(host >= 0, host, rows)
        found: dict[int, list[int]] = {}
        for row, first in zip(rows.tolist(), leader.tolist(), strict=True):
            found.setdefault(first, []).append(row)
        return list(found.values())

    def speed(self, state: State, members: list[int]) -> Floats:
        """Seconds of work per second of each member."""
        alone = state.f[members, col.ALONE]
        if len(members) == 1:
            return np.asarray(alone)
        kinds = self.stages.of[members].tolist()
        cycle = self.cycles.cycle_s(tuple(sorted(kinds)))
        return np.asarray(alone * [self.cycles.alone_s(kind) / cycle for kind in kinds])

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate groups whose members have changed."""
        rows = running_rows(state)
        company: dict[int, frozenset[int]] = {}
        jobs: list[int] = []
        speeds: list[float] = []
        pauses: list[float] = []
        for members in self.groups(state, rows):
            together = frozenset(members)
            company.update(dict.fromkeys(members, together))
            started = state.f[members, col.SINCE] == now_s
            if not started.any() and all(self._company.get(job) == together for job in members):
                continue
            joined = len(members) > 1 and (
                bool(started.any()) or any(not together <= self._company.get(job, frozenset()) for job in members)
            )
            pause = float(state.f[members, col.RESTORE].sum()) if joined else 0.0
            jobs += members
            speeds += self.speed(state, members).tolist()
            pauses += [pause] * len(members)
        self._company = company
        if jobs:
            restart(state, rule, np.array(jobs, np.int64), np.array(speeds), np.array(pauses), now_s)
