"""Who gives back borrowed GPUs: whoever is furthest above its entitlement, as far as it is beyond its guarantee.

A guaranteed claim may take from anybody outside of the tenant in whose guarantee it stands, but never so much that some
tenant there (below the nearest one that both stand under) falls under its own guarantee. So only claims within a
guarantee evict, and only what is beyond one: two tenants can never evict each other in turn.
"""

from __future__ import annotations

from cotenant.core.jit import kernel
from cotenant.tenancy.asked import N_ABOVE, N_EVICTABLE, N_TAKEN, N_USE, S_KEY, Claims
from cotenant.tenancy.claims import add_use
from cotenant.tenancy.tree_tables import Rows


@kernel
def evictable(rows: Rows, into: Claims, pool: int, top: int, apart: int) -> int:
    """GPUs of a pool (-1: of all) that rows below `top` hold beyond their guarantees, those below `apart` left out."""
    n = apart
    while n >= 0:
        into.table[n, N_ABOVE] = 1
        n = rows.parent[n]
    for n in range(rows.parent.shape[0]):
        into.table[n, N_EVICTABLE] = 0
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        found = into.table[n, N_EVICTABLE]
        for p in range(into.free.shape[0]):
            if pool < 0 or p == pool:
                found += into.keep[n, p]
        if n == apart:
            found = 0
        elif into.table[n, N_ABOVE] == 0:
            found = max(0, min(found, into.table[n, N_USE] - rows.guaranteed[n]))
        into.table[n, N_EVICTABLE] = found
        into.table[rows.parent[n], N_EVICTABLE] += found
    n = apart
    while n >= 0:
        into.table[n, N_ABOVE] = 0
        n = rows.parent[n]
    return int(into.table[top, N_EVICTABLE])


@kernel
def take_back(rows: Rows, into: Claims, pool: int, top: int, apart: int, need: int) -> None:
    """Take so many GPUs from rows below `top`, as many at a time as possible: gangs leave as a whole anyway."""
    while need > 0 and evictable(rows, into, pool, top, apart) > 0:
        n, gpus = top, need
        while rows.first[n] < rows.first[n + 1]:
            found = -1
            for child in range(rows.first[n], rows.first[n + 1]):
                if into.table[child, N_EVICTABLE] > 0 and (
                    found < 0 or into.shares[child, S_KEY] >= into.shares[found, S_KEY]
                ):
                    found = child
            n = found
            gpus = min(gpus, into.table[n, N_EVICTABLE])
        _give(rows, into, n, pool, gpus)
        need -= gpus


@kernel
def _give(rows: Rows, into: Claims, leaf: int, pool: int, gpus: int) -> None:
    """A leaf gives GPUs of a pool, or of any."""
    left = gpus
    for p in range(into.free.shape[0]):
        if pool < 0 or p == pool:
            here = min(left, into.keep[leaf, p])
            into.keep[leaf, p] -= here
            into.free[p] += here
            left -= here
    add_use(rows, into, leaf, -gpus, N_TAKEN)
