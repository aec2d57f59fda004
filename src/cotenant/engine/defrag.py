"""Defragmentation under any policy: move small jobs together, so that a gang which waits for whole nodes can start.

After a decision somebody may wait though enough GPUs of a pool are free, only not on as few nodes as its placement
asks for. Then jobs of one node (of several, for gangs larger than a node) are moved into gaps of others, the cheapest
that do, if that costs fewer GPU-seconds than the gang would wait otherwise, by what is believed of those in its way.
Moved are jobs that have sat on one node, alone on their GPUs, for `RESIDENCE_S` at least, that can save, and that did
not ask to be left alone (`Facts.movable`). The gang is promised its GPUs at once; a policy that plans is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.outcome import Scalar
from cotenant.core.plan import Places
from cotenant.core.state import State
from cotenant.core.view import Facts
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import work_done
from cotenant.engine.observe import places_of, running_rows

RESIDENCE_S = 300.0  # least time between two moves of a job
_MOST_GANGS = 8  # waiting jobs that are looked at in one decision
_MOST_MOVED = 4  # jobs off one node
_Targets = tuple[tuple[int, int], ...]  # nodes, and how many of their GPUs a gang would have


@dataclass(frozen=True, slots=True)
class Moves:
    """Who goes where, so that a gang can start at its place; what that costs, and until when it lasts."""

    gang: int
    place: Places
    moved: dict[int, Places]
    cost_gpu_s: float
    lag_s: float


class Defragmenter:
    """Finds moves; counts those that were made, and what they cost as believed."""

    def __init__(self) -> None:
        self.moves = self.started = 0
        self.cost_gpu_s = 0.0

    def figures(self) -> dict[str, Scalar]:
        """For the summary of a run."""
        return {"defrag_moves": self.moves, "defrag_gangs": self.started, "defrag_gpu_s": self.cost_gpu_s}

    def find(self, state: State, facts: Facts, order: Iterable[int], now_s: float) -> Moves | None:
        """Moves for the first in `order` for whom some pay."""
        waiting = [row for row in order if state.i[row, col.STATE] == col.WAITING]
        floor: _Floor | None = None
        seen: set[int] = set()
        for row in waiting:
            c = int(state.i[row, col.CLASS])
            if c in seen or not _could_use(state, row):
                continue
            seen.add(c)
            floor = floor or _Floor(state, facts, now_s)
            found = floor.moves_for(row)
            if found is not None:
                return found
            if len(seen) == _MOST_GANGS:
                break
        return None

    def made(self, moves: Moves) -> None:
        """They are carried out."""
        self.moves += len(moves.moved)
        self.started += 1
        self.cost_gpu_s += moves.cost_gpu_s


def _could_use(state: State, row: int) -> bool:
    """Whether a job waits for GPUs side by side, anywhere, and its tenant may have as many."""
    c, tenant = int(state.i[row, col.CLASS]), int(state.i[row, col.TENANT])
    free = state.cls[c, col.C_BOUND] == -1 and state.cls[c, col.C_NODES] == 0 and state.i[row, col.LEAVING] == 0
    left = state.quota[tenant, col.Q_LIMIT] - state.quota[tenant, col.Q_USED]
    gang = int(state.i[row, col.GPUS])
    return bool(
        free and state.cls[c, col.C_MODE] == col.CONSOLIDATED and gang <= min(int(left), int(state.x[col.IDLE]))
    )


class _Floor:
    """The nodes as they are: what is free, who could be moved."""

    def __init__(self, state: State, facts: Facts, now_s: float) -> None:
        self._s, self._now_s = state, now_s
        self._free: Ints = np.where(state.node[:, col.NODE_CAP] > 0, state.node[:, col.NODE_FREE], 0)
        self._hosts: Floats = state.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]].copy()
        self._on: dict[int, list[int]] = {}  # node -> who has GPUs there
        self._places = {row: places_of(state, row) for row in running_rows(state).tolist()}
        for row, places in self._places.items():
            for node, _, _ in places:
                self._on.setdefault(node, []).append(row)
        self._movable = {row for row in self._places if self._may_move(row, facts)}

    def _may_move(self, row: int, facts: Facts) -> bool:
        s, places = self._s, self._places[row]
        if facts.movable is not None and not facts.movable[row]:
            return False
        whole = len(places) == 1 and s.i[row, col.GPUS] == s.cls[s.i[row, col.CLASS], col.C_GPUS]
        stays = s.i[row, col.OPPORTUNISTIC] or s.i[row, col.TURN] or not s.i[row, col.YIELDS] & 2
        return bool(whole and not stays and self._now_s - s.f[row, col.SINCE] >= RESIDENCE_S and self._alone(row))

    def _alone(self, row: int) -> bool:
        s, ((node, _, mask), *_) = self._s, self._places[row]
        if not s.x[col.SHARING]:
            return True
        first = int(s.gpu_first[node])
        return all(s.gpu[first + k, 1] < 0 for k in range(mask.bit_length()) if (mask >> k) & 1)

    def moves_for(self, row: int) -> Moves | None:
        """The cheapest moves that let a gang start, if they pay."""
        s, gang = self._s, int(self._s.i[row, col.GPUS])
        pools = int(s.cls[s.i[row, col.CLASS], col.C_POOLS])
        found: list[Moves] = []
        wait_s = np.inf
        for pool in range(len(s.pool)):
            nodes = range(int(s.pool[pool, col.POOL_LO]), int(s.pool[pool, col.POOL_HI]))
            if (pools >> pool) & 1 and gang <= int(self._free[nodes.start : nodes.stop].sum()):
                ways = self._ways(gang, nodes)
                wait_s = min([wait_s, *map(self._wait_s, ways)])
                found += self._in_pool(row, ways, nodes)
        paying = [moves for moves in found if moves.moved and moves.cost_gpu_s < gang * (wait_s - moves.lag_s)]
        return min(paying, key=lambda moves: (moves.cost_gpu_s, moves.place), default=None)

    def _ways(self, gang: int, nodes: range) -> list[_Targets]:
        """Each node for a gang that fits on one; for larger ones the emptiest nodes together."""
        s, free = self._s, self._free
        size = int(s.node[nodes.start : nodes.stop, col.NODE_CAP].max(initial=0))
        if gang <= size:
            return [((node, gang),) for node in nodes if s.node[node, col.NODE_CAP] >= gang]
        whole = sorted((n for n in nodes if s.node[n, col.NODE_CAP] == size), key=lambda n: (-int(free[n]), n))
        parts = [size] * (gang // size) + [gang % size] * (gang % size > 0)
        return [tuple(zip(whole, parts, strict=False))] if size and len(whole) >= len(parts) else []

    def _in_pool(self, row: int, ways: list[_Targets], nodes: range) -> Iterator[Moves]:
        for targets in ways:
            moved = self._make_room(row, targets, nodes)
            if moved is not None:
                cost = sum(self._cost_gpu_s(one) for one in moved)
                lag_s = max((float(self._s.f[one, col.SAVING]) for one in moved), default=0.0)
                yield Moves(row, tuple((node, gpus, 0) for node, gpus in targets), moved, cost, lag_s)

    def _make_room(self, row: int, targets: _Targets, nodes: range) -> dict[int, Places] | None:
        """Who leaves these nodes for which others; None where that is not possible."""
        free, hosts = self._free.copy(), self._hosts.copy()
        kept = {node for node, _ in targets}
        moved: dict[int, Places] = {}
        for node, gpus in targets:
            leavers = self._leavers(node, gpus - int(free[node]))
            if leavers is None:
                return None
            for one in sorted(leavers, key=lambda one: (-int(self._s.i[one, col.GPUS]), one)):
                size, need = int(self._s.i[one, col.GPUS]), self._s.f[one, [col.CPUS, col.MEM]]
                gaps = [n for n in nodes if n not in kept and free[n] >= size and self._feeds(hosts[n], need)]
                if not gaps or not self._open_to(one, gaps[0]):
                    return None
                best = min(gaps, key=lambda n: (int(free[n]), n))
                free[best] -= size
                hosts[best], hosts[node] = hosts[best] - need, hosts[node] + need
                moved[one] = ((best, size, 0),)
        each = self._s.f[row, [col.CPUS, col.MEM]] / max(int(self._s.i[row, col.GPUS]), 1)
        return moved if all(self._feeds(hosts[node], gpus * each) for node, gpus in targets) else None

    def _feeds(self, left: Floats, need: Floats) -> bool:
        return not self._s.x[col.USE_HOST] or bool((need <= left + 1e-9).all())

    def _open_to(self, row: int, node: int) -> bool:
        pool = int(self._s.node[node, col.NODE_POOL])
        return bool(int(self._s.cls[self._s.i[row, col.CLASS], col.C_POOLS]) >> pool & 1)

    def _leavers(self, node: int, need: int) -> tuple[int, ...] | None:
        """The cheapest few that hold so many GPUs of a node; None where there are none."""
        if need <= 0:
            return ()
        able = sorted(row for row in self._on.get(node, []) if row in self._movable)
        size = {row: int(self._s.i[row, col.GPUS]) for row in able}
        for count in range(1, min(len(able), _MOST_MOVED) + 1):
            found = [some for some in combinations(able, count) if sum(size[row] for row in some) >= need]
            if found:
                return min(found, key=lambda some: (sum(self._cost_gpu_s(row) for row in some), some))
        return None

    def _cost_gpu_s(self, row: int) -> float:
        """What leaving and coming back takes, on all its GPUs."""
        return float(self._s.f[row, [col.RESTORE, col.START_UP, col.SAVING]].sum()) * int(self._s.i[row, col.GPUS])

    def _wait_s(self, targets: _Targets) -> float:
        """Until these nodes are free by themselves, as believed."""
        latest_s = 0.0
        for node, gpus in targets:
            free, ends = int(self._free[node]), []
            for row in self._on.get(node, []):
                left_s = max(float(self._s.f[row, col.BELIEF]) - work_done(self._s.f, self._s.i, row, self._now_s), 0.0)
                held = sum(count for at, count, _ in self._places[row] if at == node)
                ends.append((left_s / max(float(self._s.f[row, col.SPEED]), 1e-9), held))
            for end_s, held in sorted(ends):
                if free >= gpus:
                    break
                free += held
                latest_s = max(latest_s, end_s)
        return latest_s
