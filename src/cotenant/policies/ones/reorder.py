"""Places for the winning schedule: keep what a job has, give up scattered GPUs first, grow on its own nodes.

The artifact lays jobs out as contiguous blocks by dynamic programming over positions; since a score depends on sizes
only, that is needed for the winner alone, and keeping in place then costs one pass.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.plan import Slices
from cotenant.core.workload import Ints
from cotenant.placement.room import Room


def place_rigid(board: Room, which: Ints) -> dict[int, Slices]:
    """Jobs (places in the view) that keep their size: running ones stay, others start where they fit, oldest first."""
    view, run = board.view, {}
    order = which[np.lexsort((view.rows[which], view.submit_s[which], ~view.running[which]))]
    rows, sizes, running = view.rows, view.gpus, view.running
    for at in order.tolist():
        if not board.left and not running[at]:
            break
        row = int(rows[at])
        place = board.keep(row) if running[at] else board.find(row, int(sizes[at]))
        if place is not None:
            run[row] = place
    return run


def place_sizes(board: Room, wanted: list[tuple[int, int]], now: dict[int, Slices]) -> dict[int, Slices]:
    """Rows and sizes to places. `now` is where running rows sit, some of which others may have been given meanwhile.

    Whoever finds too few GPUs gets what there is, unless these are fewer than it takes.
    """
    run: dict[int, Slices] = {}
    kept: dict[int, Slices] = {}
    for row, size in wanted:
        if row in now:
            kept[row] = _keep(board, row, shrink(now[row], size))
    order = sorted(wanted, key=lambda pair: (-pair[1], pair[0]))
    for row, size in order:
        have = kept.get(row, ())
        missing = size - sum(gpus for _, gpus in have)
        if missing > 0:
            have = _grow(board, row, have, missing)
        if sum(gpus for _, gpus in have) >= board.view.size_limits(np.array([row]))[0][0]:
            run[row] = have
        else:
            board.release(row, have)
    return run


def _keep(board: Room, row: int, place: Slices) -> Slices:
    """What rigid jobs, which come first, have left of a place, GPUs, cores and memory; taken off the board."""
    kept: list[tuple[int, int]] = []
    for node, gpus in place:
        stays = min(board.room_on(row, node), gpus)
        if stays > 0:
            kept += board.claim(row, ((node, stays),))
    return tuple(kept)


def shrink(place: Slices, size: int) -> Slices:
    """The same place with at most so many GPUs: nodes with the fewest give first."""
    excess = sum(gpus for _, gpus in place) - size
    kept = []
    for node, gpus in sorted(place, key=lambda pair: (pair[1], -pair[0])):
        give = min(max(excess, 0), gpus)
        excess -= give
        if gpus > give:
            kept.append((node, gpus - give))
    return tuple(sorted(kept))


def _grow(board: Room, row: int, have: Slices, missing: int) -> Slices:
    """More GPUs: on the nodes it has, then together elsewhere, then anywhere, fewer if there are not so many."""
    place = dict(have)
    for node, _ in have:
        take = min(board.room_on(row, node), missing)
        if take > 0:
            board.claim(row, ((node, take),))
            place[node] += take
            missing -= take
    while missing > 0:
        more = board.find(row, missing, near=have)
        if more is not None:
            for node, gpus in more:
                place[node] = place.get(node, 0) + gpus
            break
        missing = min(missing - 1, board.left)
    return tuple(sorted(place.items()))
