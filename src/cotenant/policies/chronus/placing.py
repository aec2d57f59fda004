"""Places for a batch of jobs without a lease, by local search over orders and splits (Chronus, SoCC'21).

The reward of a place is the gang's size times its speed there over its best speed. Four orders are tried after the
policy's own (largest difference between best and worst reward, largest gangs, smallest gangs, largest reward), each
one is really placed on trial, and the largest total wins. With `search` above 0 the jobs that have
most to lose are also tried in every combination of together and apart, as long as there are at most so many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cotenant.core.plan import Slices
from cotenant.placement.room import Room

Places = dict[int, Slices]


@dataclass(frozen=True, slots=True)
class Mover:
    """A job that needs a place: its row, its gang, and its speed when spread over its speed when together."""

    row: int
    gpus: int
    apart: float

    @property
    def at_stake(self) -> float:
        """Reward that spreading costs."""
        return self.gpus * (1.0 - self.apart)


def movers_of(board: Room, wanted: Iterable[tuple[int, int]]) -> list[Mover]:
    """Jobs (row, GPUs) with what they know of their speeds."""
    view, found = board.view, []
    for row, gpus in wanted:
        speeds = view.site.speed[view.kind[view.at(row)]]
        best = float(speeds[:, 0].max())
        apart = float(speeds[int(np.argmax(speeds[:, 0])), 1]) / best if best > 0 else 1.0
        found.append(Mover(row, gpus, min(apart, 1.0)))
    return found


def place_batch(board: Room, movers: list[Mover], search: int = 0) -> Places:
    """The best places found; they are claimed."""
    if not movers:
        return {}
    most = float(sum(mover.gpus for mover in movers))
    best, best_reward = _try(board, movers, ())
    if best_reward < most - 1e-9:
        orders = [
            sorted(movers, key=lambda m: (-m.at_stake, m.row)),
            sorted(movers, key=lambda m: (-m.gpus, m.row)),
            sorted(movers, key=lambda m: (m.gpus, m.row)),
        ]
        orders.append(list(orders[1]))  # the largest reward of a gang is its size
        trials = [(order, ()) for order in orders]
        for order, apart in itertools.chain(trials, _combinations(orders[0], search)):
            places, reward = _try(board, order, apart)
            if reward > best_reward + 1e-9:
                best, best_reward = places, reward
    for row, place in best.items():
        board.claim(row, place)
    return best


def _combinations(order: list[Mover], search: int) -> Iterable[tuple[list[Mover], tuple[int, ...]]]:
    """The order with some of the first jobs forced apart, in every combination that the limit allows."""
    wide = [mover for mover in order if mover.gpus > 1]
    count = min(len(wide), max(int(np.log2(search)) if search > 1 else 0, 0))
    rows = [mover.row for mover in wide[:count]]
    for size in range(1, count + 1):
        for apart in itertools.combinations(rows, size):
            yield order, apart


def _try(board: Room, order: list[Mover], apart: tuple[int, ...]) -> tuple[Places, float]:
    """Place jobs in this order on trial; their places and total reward."""
    places, reward, largest = Places(), 0.0, board.site.largest_node
    with board.trial():
        for mover in order:
            place = board.find(mover.row, mover.gpus, apart=mover.row in apart)
            if place is not None:
                places[mover.row] = place
                reward += mover.gpus * (1.0 if len(place) <= -(-mover.gpus // largest) else mover.apart)
    return places, reward
