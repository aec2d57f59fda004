"""Decisions that look at the network, under any policy that leaves it to the engine where jobs go.

`avoid`: a gang that has just been given several nodes sits down on others, of as many GPUs, where all gangs together do
more work, and of places that are equal in that on fewer racks. Nobody who runs is moved.

`wait`: a gang that could start on idle GPUs waits if that lowers the sum of completion times of all who are concerned,
as believed: itself and those whom it would meet on a link, or who meet those. Starting at once is compared with
starting when one of those whom it meets has ended; for two gangs this is SJF-BSBF's test of pairs, where slowdowns are
those of links and not of GPUs. A job waits once, and for none that started later, so that it starts in the end; its
GPUs are free for others meanwhile, and it holds nobody back. Whoever has run for longer than believed counts as gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cotenant.core import columns as col
from cotenant.core.network import Gang, better_later, meeting
from cotenant.core.outcome import Scalar
from cotenant.core.plan import Slices
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.events import withdraw
from cotenant.engine.ledger import enqueue
from cotenant.engine.observe import places_of
from cotenant.engine.resizing import go_on, lay_slices, let_go
from cotenant.engine.senders import Senders, left_s
from cotenant.placement.fit import IDLE_NOW, seek, usable


@dataclass(frozen=True, slots=True)
class Waits:
    """For whom a job waits, over which link; and what that is believed to save all of them together."""

    after: frozenset[int]
    link: int
    saves_s: float


class NetworkCare:
    """Where gangs go and whether they wait, by what the network has room for."""

    def __init__(self, senders: Senders, avoids: bool, waits: bool) -> None:
        self.senders, self._avoids, self._waits = senders, avoids, waits
        self.waiting: dict[int, Waits] = {}
        self._waited: set[int] = set()
        self._moved = 0

    def figures(self) -> dict[str, Scalar]:
        """For the summary of a run."""
        moved: dict[str, Scalar] = {"network_avoided": self._moved} if self._avoids else {}
        return moved | ({"network_waits": len(self._waited)} if self._waits else {})

    def before(self, state: State, rule: Rule, now_s: float) -> None:
        """Before a decision: whoever had better wait for the network is not decided about."""
        if not self._waits:
            return
        running = self.senders.now(state)
        for row, held in list(self.waiting.items()):
            others = {one: gang for one, gang in running.items() if one in held.after}
            found = self._test(state, row, others, now_s)
            if found is None:
                self._let_go(state, rule, row, now_s)
        for row in self._candidates(state).tolist() if running else ():
            found = self._test(state, row, running, now_s)
            if found is not None:
                self.waiting[row] = found
                self._waited.add(row)
                withdraw(state, rule, row, now_s)

    def after(self, state: State, rule: Rule, now_s: float) -> None:
        """After a decision: whoever has started over several nodes sits where the network suits it best."""
        if not self._avoids or state.x[col.LAGS]:
            return
        for row in self.senders.now(state):
            if state.f[row, col.SINCE] == now_s and state.i[row, col.HOST] < 0:
                place = best_place(state, self.senders, row)
                if place is not None:
                    self._moved += 1
                    _sit_down(state, rule, row, place, now_s)
                    self.senders.forget(row)

    def slowed_by(self, state: State, row: int) -> tuple[float, int, list[int]] | None:
        """Speed of a running gang against alone, the link where it meets most others, and those; None for others."""
        gangs = self.senders.now(state)
        if row not in gangs or not gangs[row].loads:
            return None
        speed = self.senders.topology.speeds(list(gangs.values()))[list(gangs).index(row)]
        there = {link: [one for one, gang in gangs.items() if link in gang.loads] for link in gangs[row].loads}
        link = max(there, key=lambda link: (len(there[link]), link))
        return speed, link, [one for one in there[link] if one != row]

    def _let_go(self, state: State, rule: Rule, row: int, now_s: float) -> None:
        """It waits for GPUs again, and has waited meanwhile."""
        del self.waiting[row]
        state.f[row, col.WAITED] += now_s - state.f[row, col.SINCE]
        enqueue(state, rule, row, now_s)
        state.x[col.N_BACK] += 1
        state.x[col.DIRTY] = 1

    def _candidates(self, state: State) -> Ints:
        """Waiting jobs that may need several nodes, and have not waited for the network before."""
        arrived = int(state.x[col.NEXT_ARRIVAL])
        rows = np.flatnonzero(state.i[:arrived, col.STATE] == col.WAITING)
        gpus, shape = state.i[rows, col.GPUS], state.cls[state.i[rows, col.CLASS]]
        whole = int(state.pool[:, col.POOL_LARGEST].min())
        wide = (gpus > whole) | (shape[:, col.C_NODES] > 1) | (shape[:, col.C_MODE] != col.CONSOLIDATED)
        fits = (gpus > 1) & (gpus <= state.x[col.IDLE]) & (state.i[rows, col.HOME] < 0)
        return np.asarray(rows[wide & fits & ~np.isin(rows, list(self._waited))])

    def _test(self, state: State, row: int, running: dict[int, Gang], now_s: float) -> Waits | None:
        """Whether a job had better wait, and for whom; None where it may start, or could not anyway."""
        place = idle_place(state, row)
        if self._avoids and place:
            place = best_place(state, self.senders, row, place) or place
        if len(place) < 2 or not running:
            return None
        own = self.senders.at(state, row, (node for node, _ in place))
        met = meeting(own, running)
        left = {one: left_s(state, one, places_of(state, one)[0][0], now_s) for one in met}
        met = {one: gang for one, gang in met.items() if left[one] > 0}
        found = better_later(self.senders.topology, own, left_s(state, row, place[0][0], now_s), met, left)
        if found is None:
            return None
        after, saves_s = found
        return Waits(after, min(link for one in after for link in met[one].loads if link in own.loads), saves_s)


def idle_place(state: State, row: int) -> Slices:
    """Where a waiting job would go on idle GPUs by its placement rule; () for nowhere."""
    c = int(state.i[row, col.CLASS])
    gpus, parts, mode, pools = state.cls[c, [col.C_GPUS, col.C_NODES, col.C_MODE, col.C_POOLS]].tolist()
    cpus, mem = (state.f[row, [col.CPUS, col.MEM]] / max(gpus, 1)).tolist()
    open_ = np.zeros((len(state.node), 4), np.int64)
    open_[:, IDLE_NOW] = state.node[:, col.NODE_FREE]
    open_host = np.repeat(state.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]], 2, axis=1)
    pick = np.zeros_like(state.pick)
    for p in range(len(state.pool)):
        if not pools >> p & 1:
            continue
        bound = cpus, mem, IDLE_NOW, int(state.x[col.USE_HOST])
        largest = int(usable(open_, open_host, state.host, state.node, state.pool, p, *bound))
        rule = gpus, parts, cpus, mem, mode, largest, False
        count = int(seek(open_, pick, state.host, state.node, state.pool, p, *rule))
        if count:
            return tuple((int(node), int(size)) for node, size in pick[:count])
    return ()


def best_place(state: State, senders: Senders, row: int, idle: Slices = ()) -> Slices | None:
    """The place for a gang where all gangs together do the most work, on the fewest racks; None for where it is.

    It has `idle` in mind, or sits somewhere already; other places are idle too, and have parts of the same sizes.
    """
    present = idle or tuple((node, gpus) for node, gpus, _ in places_of(state, row))
    others = {one: gang for one, gang in senders.now(state).items() if one != row}
    racks = senders.topology.racks
    sizes = [*(int(state.i[one, col.GPUS]) for one in others), int(state.i[row, col.GPUS])]

    def worth(place: Slices) -> tuple[float, int]:
        gangs = [*others.values(), senders.at(state, row, (node for node, _ in place))]
        done = sum(size * speed for size, speed in zip(sizes, senders.topology.speeds(gangs), strict=True))
        return round(done, 9), -len({racks[node] for node, _ in place})

    best, most = None, worth(present)
    for place in set(_places(state, senders, row, present, others, bool(idle))):
        found = worth(place)
        if found > most or (found == most and best is not None and place < best):
            best, most = place, found
    return best


def _places(
    state: State, senders: Senders, row: int, present: Slices, others: dict[int, Gang], idle: bool
) -> Iterator[Slices]:
    """Other places for the parts of a gang: for each rack that one which begins there and goes on in the emptiest; on
    nodes whose links few others use, and that have the fewest GPUs left over."""
    pool = state.pool[state.node[present[0][0], col.NODE_POOL]]
    nodes = range(int(pool[col.POOL_LO]), int(pool[col.POOL_HI]))
    free = {node: int(state.node[node, col.NODE_FREE]) for node in nodes if state.node[node, col.NODE_CAP] > 0}
    for node, gpus in () if idle else present:
        free[node] += gpus
    free = {
        node: _fed(state, row, node, gpus, 0 if idle else dict(present).get(node, 0)) for node, gpus in free.items()
    }
    used = {node: sum(node in gang.loads for gang in others.values()) for node in free}
    parts = sorted((gpus for _, gpus in present), reverse=True)
    room: dict[int, int] = {}
    for node, gpus in free.items():
        rack = senders.topology.racks[node]
        room[rack] = room.get(rack, 0) + gpus
    for first in room:
        order = sorted(room, key=lambda rack: (rack != first, -room[rack], rack))
        rank = {rack: at for at, rack in enumerate(order)}
        line = sorted(free, key=lambda node: (rank[senders.topology.racks[node]], used[node], free[node], node))
        place: dict[int, int] = {}
        for part in parts:
            fits = next((node for node in line if node not in place and free[node] >= part), -1)
            if fits < 0:
                break
            place[fits] = part
        if len(place) == len(parts):
            yield tuple(sorted(place.items()))


def _fed(state: State, row: int, node: int, gpus: int, own: int) -> int:
    """How many of a node's GPUs its cores and memory can feed, with what the job has there itself."""
    if not state.x[col.USE_HOST]:
        return gpus
    each = state.f[row, [col.CPUS, col.MEM]] / max(int(state.i[row, col.GPUS]), 1)
    left = state.host[node, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]] + own * each
    most = [math.inf if need <= 0 else (amount + 1e-9) / need for need, amount in zip(each, left, strict=True)]
    return int(min(gpus, *most))


def _sit_down(state: State, rule: Rule, row: int, place: Slices, now_s: float) -> None:
    """A job that has begun at this very moment has other GPUs from the start."""
    logged = int(state.x[col.N_LOG])
    let_go(state, rule, row, int(state.i[row, col.GPUS]), now_s)
    go_on(state, rule, row, lay_slices(state, place), 0.0, now_s)
    state.x[col.N_LOG] = logged  # that it starts is written down already
