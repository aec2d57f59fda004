"""What is claimed of the cluster while it is filled, and the sums of it along the tree.

Each claim changes its leaf and all rows above it: GPUs in use, what is kept from strangers because it may not be lent,
and the key by which siblings are compared. Nothing here costs more than the depth of the tree or one look at siblings.
"""

from __future__ import annotations

from cotenant.core.jit import kernel
from cotenant.tenancy.asked import (
    I_LEFT,
    I_NEXT,
    ITEM_COLUMNS,
    N_HEAD,
    N_HELD_BELOW,
    N_HOLD,
    N_LIVE,
    N_USE,
    S_CPUS,
    S_ENTITLED,
    S_KEY,
    S_MEM,
    S_PAST,
    TABLE_COLUMNS,
    W_COUNT,
    W_GPUS,
    W_POOLS,
    W_ROW,
    Asked,
    Claims,
)
from cotenant.tenancy.tree_tables import Rows


@kernel
def lay_out(rows: Rows, asked: Asked, into: Claims) -> None:
    """Begin: what runs is in use, nothing that waits is claimed."""
    into.next[0] = -1
    into.capacity[0] = 0
    for tenant in range(into.limit.shape[0]):
        into.limit[tenant] = 0
    for p in range(into.free.shape[0]):
        into.free[p] = asked.idle[p]
        into.reserved[p] = -1
        into.wanted[p] = 0
        into.capacity[0] += asked.idle[p]
    _lay_out_rows(rows, asked, into)
    _lay_out_lines(asked, into)
    _sum_up(rows, into)
    _entitle(rows, into)


@kernel
def _lay_out_rows(rows: Rows, asked: Asked, into: Claims) -> None:
    for n in range(rows.parent.shape[0]):
        for column in range(TABLE_COLUMNS):
            into.table[n, column] = 0
        into.table[n, N_HEAD] = -1
        for p in range(into.keep.shape[1]):
            into.keep[n, p] = asked.running[n, p]
            into.table[n, N_USE] += asked.running[n, p]
        into.shares[n, S_PAST] = asked.past[n]
        into.shares[n, S_CPUS] = asked.running_host[n, 0]
        into.shares[n, S_MEM] = asked.running_host[n, 1]


@kernel
def _lay_out_lines(asked: Asked, into: Claims) -> None:
    """Lines of each leaf in their order, one pointing to the next."""
    for k in range(asked.waiting.shape[0] - 1, -1, -1):
        for column in range(ITEM_COLUMNS):
            into.items[k, column] = 0
        into.items[k, I_LEFT] = asked.waiting[k, W_COUNT]
        leaf, gpus = asked.waiting[k, W_ROW], asked.waiting[k, W_GPUS] * asked.waiting[k, W_COUNT]
        if gpus > 0:
            into.items[k, I_NEXT] = into.table[leaf, N_HEAD]
            into.table[leaf, N_HEAD] = k
            for p in range(into.wanted.shape[0]):
                into.wanted[p] += gpus * ((asked.waiting[k, W_POOLS] >> p) & 1)


@kernel
def _sum_up(rows: Rows, into: Claims) -> None:
    """Give every row what those below it have, and what it keeps from strangers."""
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        up = rows.parent[n]
        into.table[up, N_USE] += into.table[n, N_USE]
        for column in (S_PAST, S_CPUS, S_MEM):
            into.shares[up, column] += into.shares[n, column]
        into.table[n, N_HOLD] = max(into.table[n, N_HELD_BELOW], rows.unlent[n] - into.table[n, N_USE], 0)
        into.table[up, N_HELD_BELOW] += into.table[n, N_HOLD]
    into.capacity[0] += into.table[0, N_USE]


@kernel
def _entitle(rows: Rows, into: Claims) -> None:
    """The guarantee, or the weight's part of what the parent is entitled to, whichever is more."""
    into.shares[0, S_ENTITLED] = max(into.capacity[0], 1)
    for n in range(rows.parent.shape[0]):
        weights = 0.0
        for child in range(rows.first[n], rows.first[n + 1]):
            if rows.declared[child] == 1 or _at_work(into, child):
                weights += rows.weight[child]
        for child in range(rows.first[n], rows.first[n + 1]):
            part = rows.weight[child] / max(weights, rows.weight[child]) * into.shares[n, S_ENTITLED]
            into.shares[child, S_ENTITLED] = max(rows.guaranteed[child], part)
            _set_key(into, child)


@kernel
def _at_work(into: Claims, n: int) -> bool:
    return into.table[n, N_USE] > 0 or into.table[n, N_HEAD] >= 0 or into.shares[n, S_PAST] > 0


@kernel
def _set_key(into: Claims, n: int) -> None:
    into.shares[n, S_KEY] = (into.table[n, N_USE] + into.shares[n, S_PAST]) / into.shares[n, S_ENTITLED]


@kernel
def add_use(rows: Rows, into: Claims, leaf: int, gpus: int, column: int) -> None:
    """GPUs more or less for a leaf and all above it; `column` counts them too."""
    n, below = leaf, 0
    while n >= 0:
        into.table[n, N_USE] += gpus
        into.table[n, column] += abs(gpus)
        into.table[n, N_HELD_BELOW] += below
        hold = max(into.table[n, N_HELD_BELOW], rows.unlent[n] - into.table[n, N_USE], 0)
        below = hold - into.table[n, N_HOLD]
        into.table[n, N_HOLD] = hold
        _set_key(into, n)
        n = rows.parent[n]


@kernel
def may_claim(rows: Rows, into: Claims, leaf: int, gpus: int, top: int, most: int) -> bool:
    """Whether a gang fits under the ceilings from its leaf up to a row, of which all may claim `most` together.

    What tenants on the way do not lend is left for them.
    """
    n, below = leaf, 0
    while True:
        use, held = into.table[n, N_USE] + gpus, into.table[n, N_HELD_BELOW] + below
        if use + held > (most if n == top else rows.most[n]):
            return False
        if n == top:
            return True
        below = max(held, rows.unlent[n] - use, 0) - into.table[n, N_HOLD]
        n = rows.parent[n]


@kernel
def below_ceilings(rows: Rows, into: Claims, leaf: int, gpus: int) -> bool:
    """Whether a gang fits under all ceilings above it, whatever others do not lend."""
    n = leaf
    while n > 0:
        if into.table[n, N_USE] + gpus > rows.most[n]:
            return False
        n = rows.parent[n]
    return True


@kernel
def hosts_allow(rows: Rows, asked: Asked, into: Claims, leaf: int, k: int) -> bool:
    """Whether a gang of a line is within the cores and memory of all above it."""
    n = leaf
    while n > 0:
        for at in range(2):
            if into.shares[n, S_CPUS + at] + asked.waiting_host[k, at] > rows.host[n, at]:
                return False
        n = rows.parent[n]
    return True


@kernel
def pool_with_room(asked: Asked, into: Claims, k: int, borrows: bool) -> int:
    """The pool with idle GPUs for a gang that others want least; -1 if there is none. Reserved ones are not lent."""
    found = -1
    for p in range(into.free.shape[0]):
        if (asked.waiting[k, W_POOLS] >> p) & 1 == 0 or into.free[p] < asked.waiting[k, W_GPUS]:
            continue
        if borrows and into.reserved[p] >= 0:
            continue
        if found < 0 or into.wanted[p] < into.wanted[found]:
            found = p
    return found


@kernel
def some_are_free(into: Claims) -> bool:
    """Whether there are idle GPUs for borrowers."""
    free = 0
    for p in range(into.free.shape[0]):
        if into.reserved[p] < 0:
            free += into.free[p]
    return free > 0


@kernel
def reserve(asked: Asked, into: Claims, k: int) -> None:
    """Keep borrowers off the pool with most idle GPUs of those that a gang could use."""
    found = -1
    for p in range(into.free.shape[0]):
        open_ = (asked.waiting[k, W_POOLS] >> p) & 1 == 1 and into.reserved[p] < 0
        if open_ and (found < 0 or into.free[p] > into.free[found]):
            found = p
    if found >= 0:
        into.reserved[found] = k


@kernel
def claim(rows: Rows, asked: Asked, into: Claims, k: int, leaf: int, pool: int, column: int) -> None:
    """One gang of a line claims idle GPUs of a pool."""
    gpus = asked.waiting[k, W_GPUS]
    into.free[pool] -= gpus
    into.items[k, I_LEFT] -= 1
    add_use(rows, into, leaf, gpus, column)
    n = leaf
    while n >= 0:
        into.shares[n, S_CPUS] += asked.waiting_host[k, 0]
        into.shares[n, S_MEM] += asked.waiting_host[k, 1]
        n = rows.parent[n]


@kernel
def count_live(rows: Rows, into: Claims) -> None:
    """Tell every row how many leaves below it are in the round."""
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        into.table[rows.parent[n], N_LIVE] += into.table[n, N_LIVE]


@kernel
def close(rows: Rows, into: Claims, leaf: int) -> None:
    """Take a leaf out of the round."""
    n = leaf
    while n >= 0:
        into.table[n, N_LIVE] -= 1
        n = rows.parent[n]


@kernel
def lowest(rows: Rows, into: Claims) -> int:
    """The leaf in the round whose turn it is: from the top down, the sibling with the lowest share over entitlement."""
    n = 0
    while rows.first[n] < rows.first[n + 1]:
        found = -1
        for child in range(rows.first[n], rows.first[n + 1]):
            if into.table[child, N_LIVE] > 0 and (found < 0 or into.shares[child, S_KEY] < into.shares[found, S_KEY]):
                found = child
        n = found
    return n
