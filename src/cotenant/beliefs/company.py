"""How fast running jobs go in company, as rate models of the engine: by a table of pairs, on terms, or stage by stage.

What moves simulated jobs by the truth moves live ones, between two reports, by what is believed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cotenant.beliefs.granting import regrant
from cotenant.core import columns as col
from cotenant.core.cycles import Cycles
from cotenant.core.stages import Stages
from cotenant.core.state import Rule, State
from cotenant.core.together import CURVE, Together
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import places_of, running_rows
from cotenant.engine.rates import paired_speeds, rerate, rerate_shared, restart, shared_speeds, winds_up

_NOBODY: frozenset[int] = frozenset()


class PairSpeeds:
    """Jobs on one GPU slow each other down as a table of pairs says; with `granting` memory, that is in it."""

    def __init__(self, pair: NDArray[np.float64], granting: Together | None = None) -> None:
        self.pair, self._granting = np.ascontiguousarray(pair, np.float64), granting

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job in its present company."""
        out = np.empty(len(rows))
        paired_speeds(state, self.pair, rows, out)
        return out

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody; those whose company has not changed are left alone."""
        if self._granting is not None:
            regrant(state, self._granting)
        rows = running_rows(state)
        rerate(state, rule, rows, self.speeds(state, rows), now_s)


class SharedSpeeds:
    """Jobs on one GPU slow each other down by pairs, in proportion to what each is allowed; memory limits cost too.

    So may jobs on other GPUs of a server (`Together.nearby`). Where memory gives, jobs are granted theirs first, unless
    the policy says itself who keeps how much (`grants`).
    """

    def __init__(self, together: Together, grants: bool = True) -> None:
        self._granting = together if grants and together.soft is not None else None
        self.nearby = together.nearby
        self.ratio = np.ascontiguousarray(together.ratio, np.float64)
        self.eased = together.easing()
        self.pace = np.ascontiguousarray(together.pace, np.float64)
        self.curve = np.ascontiguousarray(together.curve, np.float64)
        self._rows: Ints = np.empty(0, np.int64)  # scratch
        self._speeds: Floats = np.empty(0)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody; those whose company and terms have not changed are left alone."""
        if self._granting is not None:
            regrant(state, self._granting)
        if self._by_pairs_alone():
            if len(self._rows) < len(state.run):
                self._rows, self._speeds = np.empty(len(state.run), np.int64), np.empty(len(state.run))
            tables = self.ratio, self.eased, self.pace, self.curve, CURVE
            rerate_shared(state, rule, *tables, self._rows, self._speeds, now_s)
            return
        rows = running_rows(state)
        rerate(state, rule, rows, self.speeds(state, rows), now_s)

    def _by_pairs_alone(self) -> bool:
        """Whether terms and those on the same GPUs are all that counts."""
        return self.nearby is None

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job on its terms and in its present company."""
        speeds = np.empty(len(rows))
        shared_speeds(state, self.ratio, self.eased, self.pace, self.curve, CURVE, rows, speeds)
        return speeds if self.nearby is None else speeds * near_others(state, rows, self.nearby)


class MeasuredSpeeds(SharedSpeeds):
    """The same as believed, but for rows of which it was measured how fast they are against alone.

    `measured` is that speed and beside which rows it was seen: in other company the belief holds.
    """

    def __init__(
        self, together: Together, measured: Mapping[int, tuple[float, frozenset[int]]], grants: bool = True
    ) -> None:
        super().__init__(together, grants)
        self.measured = measured

    def _by_pairs_alone(self) -> bool:
        return super()._by_pairs_alone() and not self.measured

    def speeds(self, state: State, rows: Ints) -> Floats:
        """As measured, else as believed."""
        speeds = super().speeds(state, rows)
        for at, row in enumerate(rows.tolist() if self.measured else ()):
            pace, company = self.measured.get(row, (0.0, frozenset()))
            if pace > 0 and company == beside(state, row) and not winds_up(state, row, float(state.t[col.NOW])):
                whole = state.i[row, col.TURN] > 0 and state.x[col.ROTATES] == 1
                share = 1.0 if whole else float(state.f[row, col.SHARE])  # pauses do not count as steps
                speeds[at] = state.f[row, col.ALONE] * min(pace, 1.0) * share
        return speeds


def near_others(state: State, rows: Ints, nearby: NDArray[np.float64]) -> Floats:
    """Speed of each running job against a server of its own: beside the worst of the others there, by their kinds.

    Those on its own GPUs do not count, and a gang moves as on the worst of its servers.
    """
    masks = {row: {node: mask for node, _, mask in places_of(state, row)} for row in rows.tolist()}
    there: dict[int, list[int]] = {}
    for row, places in masks.items():
        for node in places:
            there.setdefault(node, []).append(row)
    kind = state.i[:, col.SPEED_ROW]
    found = np.ones(len(rows))
    for at, (row, places) in enumerate(masks.items()):
        for node, mask in places.items():
            others = [kind[one] for one in there[node] if one != row and not masks[one][node] & mask]
            found[at] = min(found[at], float(nearby[kind[row], others].min(initial=1.0)))
    return found


def beside(state: State, row: int) -> frozenset[int]:
    """Who else runs on the GPUs of a job."""
    found: set[int] = set()
    for node, _, mask in places_of(state, row):
        first = int(state.gpu_first[node])
        for bit in range(mask.bit_length()):
            if mask >> bit & 1:
                found.update(state.gpu[first + bit].tolist())
    return frozenset(one for one in found - {-1, row} if state.i[one, col.PROMISED] == 0)


class StageSpeeds:
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

    def speed(self, state: State, members: list[int]) -> list[float]:
        """Seconds of work per second of each member."""
        number = state.f.item
        if len(members) == 1:
            return [number(members[0], col.ALONE)]
        kinds = [self.stages.of.item(row) for row in members]
        cycle = self.cycles.cycle_s(tuple(sorted(kinds))) / self._squeezed(state, members)
        alone_s = self.cycles.alone_s
        return [number(row, col.ALONE) * (alone_s(kind) / cycle) for row, kind in zip(members, kinds, strict=True)]

    def _squeezed(self, state: State, members: list[int]) -> float:
        """Speed of the member that lacks most memory, against a GPU of its own: the others wait for it."""
        soft = self.stages.soft
        if soft is None:
            return 1.0
        node = state.slices[state.i[members[0], col.SLICE], col.SLICE_NODE]
        alone = soft.alone_parts(int(state.pool[state.node[node, col.NODE_POOL], col.POOL_TYPE]))
        parts = zip(state.i[members, col.SPEED_ROW].tolist(), state.f[members, col.CAP].tolist(), strict=True)
        return min(soft.speed_at(kind, part) / soft.speed_at(kind, float(alone[kind])) for kind, part in parts)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate groups whose members have changed."""
        if self.stages.soft is not None:
            regrant(state, self.stages.soft)
        rows = running_rows(state)
        fresh = set(rows[state.f[rows, col.SINCE] == now_s].tolist())
        before, company = self._company, dict[int, frozenset[int]]()
        jobs: list[int] = []
        speeds: list[float] = []
        pauses: list[float] = []
        for members in self.groups(state, rows):
            together = before.get(members[0], _NOBODY)
            if len(together) != len(members) or not together.issuperset(members):
                together = frozenset(members)
            for job in members:
                company[job] = together
            started = not fresh.isdisjoint(members)
            if not started and all(before.get(job) == together for job in members):
                continue
            joined = len(members) > 1 and (started or any(not together <= before.get(job, _NOBODY) for job in members))
            pause = sum(state.f.item(row, col.RESTORE) for row in members) if joined else 0.0
            jobs += members
            speeds += self.speed(state, members)
            pauses += [pause] * len(members)
        self._company = company
        if jobs:
            restart(state, rule, np.array(jobs, np.int64), np.array(speeds), np.array(pauses), now_s)
