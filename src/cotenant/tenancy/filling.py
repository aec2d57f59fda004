"""Who may hold how many GPUs now: the cluster is filled gang by gang, in the order of the rule of tenants.

1. *trimmed*: whoever runs beyond a ceiling (or beyond what it may borrow) since the tree changed gives that back;
2. *guaranteed*: waiting gangs within the guarantee of their tenant, or of the nearest tenant above that has some
   unspent. They take idle GPUs, else GPUs that run beyond the guarantees of others;
3. *borrowed*: what is idle then, one gang at a time to the tenant with the lowest share over entitlement, compared
   among siblings from the top of the tree down. Gangs that have waited too long for their turn come first.

What runs and is not taken back is kept: borrowers never evict borrowers. `docs/tenants.md` tells it to users. The sums
along the tree are in `claims.py`, who gives back what in `reclaim.py`.
"""

from __future__ import annotations

from cotenant.core.jit import entry, kernel
from cotenant.tenancy.asked import (
    I_BORROWED,
    I_GUARANTEED,
    I_LEFT,
    I_NEXT,
    I_REFUSED,
    KEPT_ASIDE,
    N_BORROWED,
    N_CURSOR,
    N_GUARANTEED,
    N_HEAD,
    N_LIVE,
    N_USE,
    NO_GPUS,
    NOT_REFUSED,
    OVER_LIMIT,
    W_AGED,
    W_GPUS,
    W_POOLS,
    Asked,
    Claims,
)
from cotenant.tenancy.claims import (
    below_ceilings,
    claim,
    close,
    count_live,
    hosts_allow,
    lay_out,
    lowest,
    may_claim,
    pool_with_room,
    reserve,
    some_are_free,
)
from cotenant.tenancy.reclaim import evictable, take_back
from cotenant.tenancy.tree_tables import Rows


@entry
def fill_limits(rows: Rows, asked: Asked, into: Claims) -> None:
    """Work out limits; see `Asked` for what it takes and `Claims` for what it gives."""
    lay_out(rows, asked, into)
    _trim(rows, into)
    deepest = 0
    for n in range(rows.parent.shape[0]):
        if rows.first[n] < rows.first[n + 1]:
            deepest = max(deepest, rows.depth[n])
    _claim_guaranteed(rows, asked, into, -1)
    for depth in range(deepest, 0, -1):
        _claim_guaranteed(rows, asked, into, depth)
    _borrow(rows, asked, into, True)
    _borrow(rows, asked, into, False)
    for n in range(rows.parent.shape[0]):
        if rows.tenant[n] >= 0:
            into.limit[rows.tenant[n]] += into.table[n, N_USE]


@kernel
def _trim(rows: Rows, into: Claims) -> None:
    """Take back what runs beyond a ceiling; inside each tenant, what is beyond the guarantees of those below it."""
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        over = into.table[n, N_USE] - rows.most[n]
        if over > 0:
            take_back(rows, into, -1, n, -1, over)


@kernel
def _claim_guaranteed(rows: Rows, asked: Asked, into: Claims, depth: int) -> None:
    """Claims within the guarantees of the tenants of one depth; -1: of the leaves."""
    for n in range(rows.parent.shape[0]):
        at = _whose_guarantee(rows, n, depth) if into.table[n, N_HEAD] >= 0 else -1
        into.table[n, N_LIVE] = int(at >= 0 and into.table[at, N_USE] < rows.guaranteed[at])
        into.table[n, N_CURSOR] = into.table[n, N_HEAD]
    count_live(rows, into)
    while into.table[0, N_LIVE] > 0:
        leaf = lowest(rows, into)
        at = _whose_guarantee(rows, leaf, depth)
        k = into.table[leaf, N_CURSOR]
        if into.items[k, I_LEFT] > 0 and _claim_within(rows, asked, into, k, leaf, at):
            into.items[k, I_GUARANTEED] += 1
        else:
            _next_line(rows, into, leaf)


@kernel
def _whose_guarantee(rows: Rows, leaf: int, depth: int) -> int:
    """The row of this depth at or above a leaf; with -1 the leaf itself. -1 if there is none."""
    if depth < 0:
        return leaf
    if rows.depth[leaf] <= depth:
        return -1
    n = leaf
    while rows.depth[n] > depth:
        n = rows.parent[n]
    return n


@kernel
def _next_line(rows: Rows, into: Claims, leaf: int) -> None:
    """Go on to the next line of a leaf; after the last one it is out of the round."""
    into.table[leaf, N_CURSOR] = into.items[into.table[leaf, N_CURSOR], I_NEXT]
    if into.table[leaf, N_CURSOR] < 0:
        close(rows, into, leaf)


@kernel
def _claim_within(rows: Rows, asked: Asked, into: Claims, k: int, leaf: int, at: int) -> bool:
    """Claim one gang of a line within the guarantee of a row, on idle GPUs or on others' borrowed ones."""
    gpus = asked.waiting[k, W_GPUS]
    if not may_claim(rows, into, leaf, gpus, at, rows.guaranteed[at]) or not hosts_allow(rows, asked, into, leaf, k):
        return False
    pool = pool_with_room(asked, into, k, False)
    tight = False
    n = rows.parent[at]
    while n > 0:
        tight = tight or into.table[n, N_USE] + gpus > rows.most[n]
        n = rows.parent[n]
    if pool < 0 or tight:
        if rows.reclaims[leaf] == 0 or not _make_room(rows, asked, into, k, at, pool):
            return False
        pool = pool_with_room(asked, into, k, False)
    claim(rows, asked, into, k, leaf, pool, N_GUARANTEED)
    return True


@kernel
def _make_room(rows: Rows, asked: Asked, into: Claims, k: int, at: int, pool: int) -> bool:
    """Take borrowed GPUs back for a gang within the guarantee of a row; nothing unless that is enough."""
    gpus = asked.waiting[k, W_GPUS]
    if pool < 0:
        least = gpus + 1
        for p in range(into.free.shape[0]):
            need = gpus - into.free[p]
            if (asked.waiting[k, W_POOLS] >> p) & 1 and need < least and evictable(rows, into, p, 0, at) >= need:
                pool, least = p, need
        if pool < 0:
            return False
    n = rows.parent[at]
    while n > 0:
        if evictable(rows, into, -1, n, at) < into.table[n, N_USE] + gpus - rows.most[n]:
            return False
        n = rows.parent[n]
    n = rows.parent[at]
    while n > 0:  # where a tenant above is at its ceiling, somebody below it gives way, if possible in this pool
        take_back(rows, into, pool, n, at, into.table[n, N_USE] + gpus - rows.most[n])
        take_back(rows, into, -1, n, at, into.table[n, N_USE] + gpus - rows.most[n])
        n = rows.parent[n]
    take_back(rows, into, pool, 0, at, gpus - into.free[pool])
    return True


@kernel
def _borrow(rows: Rows, asked: Asked, into: Claims, aged: bool) -> None:
    """Idle GPUs, gang by gang in order of share over entitlement; or only the first gangs of lines that have aged."""
    for n in range(rows.parent.shape[0]):
        into.table[n, N_LIVE] = int(into.table[n, N_HEAD] >= 0)
        into.table[n, N_CURSOR] = into.table[n, N_HEAD]
    count_live(rows, into)
    while into.table[0, N_LIVE] > 0 and (aged or into.next[0] < 0 or some_are_free(into)):
        leaf = lowest(rows, into)
        k = into.table[leaf, N_CURSOR]
        if aged and (asked.waiting[k, W_AGED] == 0 or into.items[k, I_GUARANTEED] > 0):
            _next_line(rows, into, leaf)
            continue
        claimed = into.items[k, I_LEFT] > 0 and _borrow_one(rows, asked, into, k, leaf, aged)
        if claimed:
            into.items[k, I_BORROWED] += 1
        if aged or not claimed:
            _next_line(rows, into, leaf)


@kernel
def _borrow_one(rows: Rows, asked: Asked, into: Claims, k: int, leaf: int, aged: bool) -> bool:
    """Claim one gang of a line on idle GPUs, or say why not; one that has aged keeps the GPUs of a pool for itself."""
    gpus, why = asked.waiting[k, W_GPUS], NOT_REFUSED
    pool = pool_with_room(asked, into, k, True)
    if not hosts_allow(rows, asked, into, leaf, k) or not below_ceilings(rows, into, leaf, gpus):
        why = OVER_LIMIT
    elif pool < 0:
        why = NO_GPUS
        if aged:
            reserve(asked, into, k)
        if into.next[0] < 0:
            into.next[0] = k
    elif not may_claim(rows, into, leaf, gpus, 0, into.capacity[0]):
        why = KEPT_ASIDE
    if why != NOT_REFUSED:
        if into.items[k, I_GUARANTEED] + into.items[k, I_BORROWED] == 0:
            into.items[k, I_REFUSED] = why
        return False
    claim(rows, asked, into, k, leaf, pool, N_BORROWED)
    return True
