"""What the filling is asked, and what it says: tuples of arrays that compiled code can take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.native.types import nested
from cotenant.core.state import State
from cotenant.tenancy.tree_tables import Rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
Matrix = NDArray[np.float64]

# Columns of `Asked.waiting`: equal waiting gangs of one tenant (a class).
W_ROW, W_GPUS, W_COUNT, W_POOLS, W_AGED = 0, 1, 2, 3, 4
WAITING_COLUMNS = 5
# Columns of `Claims.items`: what the filling said to each line of `Asked.waiting`.
I_GUARANTEED, I_BORROWED, I_REFUSED, I_NEXT, I_LEFT = 0, 1, 2, 3, 4
ITEM_COLUMNS = 5
# Why the first gang of a line that has no claim has none.
NOT_REFUSED, NO_GPUS, OVER_LIMIT, KEPT_ASIDE = 0, 1, 2, 3
# Columns of `Claims.table`, per row of the tree, with all rows below it: GPUs in use or claimed; of that, claimed by
# waiting gangs within a guarantee, and beyond; taken back. Then scratch: kept from strangers by this row and by those
# below it, leaves that are in the round, first and present line of a leaf, evictable, whether it is above.
(
    N_USE, N_GUARANTEED, N_BORROWED, N_TAKEN, N_HOLD, N_HELD_BELOW, N_LIVE, N_HEAD, N_CURSOR, N_EVICTABLE, N_ABOVE,
) = range(11)  # fmt: skip
TABLE_COLUMNS = 11
# Columns of `Claims.shares`.
S_ENTITLED, S_KEY, S_PAST, S_CPUS, S_MEM = 0, 1, 2, 3, 4
SHARE_COLUMNS = 5


class Asked(NamedTuple):
    """What is held and asked for. Nothing here is changed.

    Pools are numbered 0 to P - 1 (P <= 62); a gang sits in one of the pools that its mask names.
    """

    idle: Ints  # P: GPUs that are free, or being left by jobs that were stopped
    running: (
        IntMatrix  # rows x (P + 1): GPUs held by running jobs that count to this leaf, by pool; the last column: GPUs
    )
    # that cannot be had by stopping (jobs that may not be stopped, nodes that are drained). Rows that are no leaves: 0
    running_host: Matrix  # rows x (cores, GiB) held by leaves
    past: Floats  # rows: decayed past use of leaves in GPUs; all 0 where only what is held now counts
    waiting: (
        IntMatrix  # lines x WAITING_COLUMNS: leaf, GPUs of one gang, how many gangs, mask of pools, 1 if its first gang
    )
    # has waited for its turn so long that GPUs are reserved for it. Lines of one tenant in the order of their heads.
    waiting_host: Matrix  # lines x (cores, GiB) of one gang; 0 where that is not known


class Claims(NamedTuple):
    """What follows, and the scratch that it takes: `new_claims` makes it, for one tree and so many lines."""

    limit: Ints  # tenants: most GPUs that it may hold now. Write it to Q_LIMIT
    keep: IntMatrix  # rows x (P + 1): how much of `Asked.running` stays; the rest is to be taken back
    free: Ints  # P: idle GPUs that nobody claims
    reserved: Ints  # P: the line for whose first gang all of `free` is kept from borrowers; -1: none
    table: IntMatrix  # rows x TABLE_COLUMNS
    shares: Matrix  # rows x SHARE_COLUMNS
    items: IntMatrix  # lines x ITEM_COLUMNS
    next: Ints  # 1: the first line whose turn it was to borrow but that found no GPUs; -1 if none
    capacity: Ints  # 1: all GPUs, idle or held
    wanted: Ints  # P: GPUs of waiting gangs that could sit in this pool


def new_claims(rows: Rows, tenants: int, pools: int, lines: int) -> Claims:
    """Room for what `fill_limits` says. It may be used again and again while tree, pools and tenants are the same."""
    count = len(rows.parent)
    return Claims(
        np.zeros(tenants, np.int64),
        np.zeros((count, pools + 1), np.int64),
        np.zeros(pools, np.int64),
        np.full(pools, -1, np.int64),
        np.zeros((count, TABLE_COLUMNS), np.int64),
        np.zeros((count, SHARE_COLUMNS)),
        np.zeros((lines, ITEM_COLUMNS), np.int64),
        np.full(1, -1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(pools, np.int64),
    )


nested(State, rows=Rows, asked=Asked, claims=Claims)
