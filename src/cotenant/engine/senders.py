"""Which running jobs send over the network, as `core.network` sees them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cotenant.core import columns as col
from cotenant.core.network import Gang, Topology, Traffic
from cotenant.core.state import State
from cotenant.engine.keys import work_done
from cotenant.engine.observe import places_of, running_rows
from cotenant.placement.fit import fewest_nodes


class Senders:
    """Gangs over several nodes, by row. What is known of one that sits where it sat is not worked out again."""

    def __init__(self, topology: Topology, traffic: Traffic) -> None:
        self.topology, self.traffic = topology, traffic
        self._known: dict[int, tuple[int, float, Gang]] = {}  # row -> head of its slices, since when, and what it is

    def now(self, state: State) -> dict[int, Gang]:
        """Those that run, in order of rows."""
        rows = running_rows(state)
        heads = state.i[rows, col.SLICE]
        wide = np.sort(rows[state.slices[heads, col.SLICE_NEXT] >= 0]).tolist()
        known: dict[int, tuple[int, float, Gang]] = {}
        for row in wide:
            here = int(state.i[row, col.SLICE]), float(state.f[row, col.SINCE])
            if row in self._known and self._known[row][:2] == here:
                known[row] = self._known[row]
            else:
                known[row] = *here, self.at(state, row, (node for node, _, _ in places_of(state, row)))
        self._known = known
        return {row: gang for row, (_, _, gang) in known.items()}

    def forget(self, row: int) -> None:
        """It sits elsewhere since the very moment at which it sat down."""
        self._known.pop(row, None)

    def at(self, state: State, row: int, nodes: Iterable[int]) -> Gang:
        """A job as it would be on these nodes."""
        nodes = tuple(nodes)
        gpus, parts = int(state.i[row, col.GPUS]), int(state.cls[state.i[row, col.CLASS], col.C_NODES])
        pool = int(state.node[nodes[0], col.NODE_POOL])
        fewest = parts or int(fewest_nodes(state.node, state.pool, pool, gpus))
        gradient, compute_s = float(self.traffic.gradient[row]), float(self.traffic.compute_s[row])
        return self.topology.gang(nodes, fewest, gradient, compute_s / whole_speed(state, row, pool))


def whole_speed(state: State, row: int, pool: int) -> float:
    """Speed of a job on a pool where it is not spread: the network itself says what being spread costs."""
    return float(state.speed[state.i[row, col.SPEED_ROW], state.pool[pool, col.POOL_TYPE], 0])


def left_s(state: State, row: int, node: int, now_s: float) -> float:
    """Seconds that a job is believed to need yet, on the pool of a node and alone on its links."""
    done = work_done(state.f, state.i, row, now_s)
    return max(float(state.f[row, col.BELIEF]) - done, 0.0) / whole_speed(
        state, row, int(state.node[node, col.NODE_POOL])
    )
