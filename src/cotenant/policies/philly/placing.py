"""Where a gang goes: racks and servers by how empty they are, small jobs where least is left over.

A search says how many GPUs a job could have together within its locality, and which: the whole gang, or what it may
hold until the rest comes free.
"""

from __future__ import annotations

import math

from cotenant.core.columns import NODE_CAP, POOL_HI, POOL_LO
from cotenant.core.jit import kernel
from cotenant.core.workload import Ints
from cotenant.policies.philly.tables import (
    ANYWHERE,
    FEWEST,
    N_PICKED,
    ONE_RACK,
    RACK_END,
    RACK_FIRST,
    Situation,
    Workspace,
)


@kernel
def fed(s: Situation, job: int, gpus: int, cores: float, gib: float) -> int:
    """For how many of these GPUs of a job so many cores and GiB suffice."""
    if s.cpus[job] > 0 and cores < math.inf:
        gpus = min(gpus, int((max(cores, 0.0) + 1e-9) / s.cpus[job]))
    if s.mem_gib[job] > 0 and gib < math.inf:
        gpus = min(gpus, int((max(gib, 0.0) + 1e-9) / s.mem_gib[job]))
    return gpus


@kernel
def look_over(s: Situation, w: Workspace, free: Ints, job: int, lo: int, hi: int) -> None:
    """What each node of a pool has for a job, now and at most; what each rack has."""
    parts = s.parts[job]
    each = s.gpus[job] // max(parts, 1)
    for r in range(s.rack_of[lo], s.rack_of[hi - 1] + 1):
        w.rack_free[r] = w.rack_size[r] = 0
    for n in range(lo, hi):
        usable, size = max(free[n], 0), s.node[n, NODE_CAP]
        if s.hosts_bind == 1:
            usable = fed(s, job, usable, w.room[n, 0], w.room[n, 1])
            size = fed(s, job, size, s.host[n, 0], s.host[n, 1])
        if parts > 0:
            usable, size = each if usable >= each else 0, each if size >= each else 0
        w.usable[n], w.size[n] = usable, size
        w.rack_free[s.rack_of[n]] += usable
        w.rack_size[s.rack_of[n]] += size


@kernel
def largest(values: Ints, mark: Ints, lo: int, hi: int) -> int:
    """The unmarked node with most; -1 when none has any."""
    best = -1
    for n in range(lo, hi):
        if mark[n] == 0 and values[n] > 0 and (best < 0 or values[n] > values[best]):
            best = n
    return best


@kernel
def sum_of_largest(w: Workspace, values: Ints, lo: int, hi: int, most: int, enough: int) -> int:
    """GPUs of the `most` best nodes, counted until there are enough."""
    total = 0
    if most >= hi - lo:
        for n in range(lo, hi):
            total += values[n]
        return min(total, enough)
    for n in range(lo, hi):
        w.mark[n] = 0
    for _ in range(most):
        n = largest(values, w.mark, lo, hi)
        if n < 0 or total >= enough:
            break
        w.mark[n] = 1
        total += values[n]
    return min(total, enough)


@kernel
def fewest_servers(w: Workspace, lo: int, hi: int, gang: int) -> int:
    """On how many nodes a gang would sit if all were empty; 0 when it does not fit at all."""
    for n in range(lo, hi):
        w.mark[n] = 0
    total = count = 0
    while total < gang:
        n = largest(w.size, w.mark, lo, hi)
        if n < 0:
            return 0
        w.mark[n] = 1
        total += w.size[n]
        count += 1
    return count


@kernel
def take(w: Workspace, lo: int, hi: int, gang: int, most: int) -> int:
    """Pick the emptiest nodes of a rack, `most` at most, until a gang is whole; how many GPUs it has then."""
    for n in range(lo, hi):
        w.mark[n] = 0
    got = 0
    for _ in range(most):
        n = largest(w.usable, w.mark, lo, hi)
        if n < 0 or got == gang:
            break
        w.mark[n] = 1
        gpus = min(w.usable[n], gang - got)
        w.pick[w.marks[N_PICKED], 0], w.pick[w.marks[N_PICKED], 1] = n, gpus
        w.marks[N_PICKED] += 1
        got += gpus
    return got


@kernel
def one_server(s: Situation, w: Workspace, lo: int, hi: int, gang: int) -> int:
    """The server where a small job leaves least over, of the fuller rack; else the best of those that could hold it."""
    best = part = -1
    for n in range(lo, hi):
        if w.usable[n] >= gang:
            fuller = best >= 0 and w.rack_free[s.rack_of[n]] < w.rack_free[s.rack_of[best]]
            if best < 0 or w.usable[n] < w.usable[best] or (w.usable[n] == w.usable[best] and fuller):
                best = n
        elif w.size[n] >= gang and w.usable[n] > 0 and (part < 0 or w.usable[n] > w.usable[part]):
            part = n
    n = best if best >= 0 else part
    if n < 0:
        return 0
    w.pick[0, 0], w.pick[0, 1] = n, min(w.usable[n], gang)
    w.marks[N_PICKED] = 1
    return int(w.pick[0, 1])


@kernel
def emptier(w: Workspace, one: int, other: int) -> bool:
    """Whether less of one rack is occupied."""
    return bool(w.rack_free[one] * w.rack_size[other] > w.rack_free[other] * w.rack_size[one])


@kernel
def one_rack(s: Situation, w: Workspace, lo: int, hi: int, gang: int, most: int) -> int:
    """The emptiest rack with a place on `most` servers; else that of most GPUs, if it could ever hold the gang."""
    best, best_got = -1, 0
    for r in range(s.rack_of[lo], s.rack_of[hi - 1] + 1):
        first, end = s.racks[r, RACK_FIRST], s.racks[r, RACK_END]
        if w.rack_free[r] == 0 or w.rack_free[r] < min(best_got, gang):
            continue
        got = sum_of_largest(w, w.usable, first, end, most, gang)
        if got < best_got or (got == best_got and not emptier(w, r, best)):
            continue
        if got < gang and sum_of_largest(w, w.size, first, end, most, gang) < gang:
            continue
        best, best_got = r, got
    if best < 0:
        return 0
    return take(w, s.racks[best, RACK_FIRST], s.racks[best, RACK_END], gang, most)


@kernel
def several_racks(s: Situation, w: Workspace, lo: int, hi: int, gang: int) -> int:
    """Rack by rack, the emptiest first."""
    first, end = s.rack_of[lo], s.rack_of[hi - 1] + 1
    for r in range(first, end):
        w.rack_mark[r] = 0
    got = 0
    while got < gang:
        best = -1
        for r in range(first, end):
            if w.rack_mark[r] == 0 and w.rack_free[r] > 0 and (best < 0 or emptier(w, r, best)):
                best = r
        if best < 0:
            break
        w.rack_mark[best] = 1
        lo_, hi_ = s.racks[best, RACK_FIRST], s.racks[best, RACK_END]
        got += take(w, lo_, hi_, gang - got, hi_ - lo_)
    return got


@kernel
def least_locality(s: Situation, w: Workspace, lo: int, hi: int, gang: int, fewest: int) -> int:
    """The closest locality that an empty cluster could give to a gang."""
    found = ANYWHERE
    for r in range(s.rack_of[lo], s.rack_of[hi - 1] + 1):
        if w.rack_size[r] >= gang:
            found = ONE_RACK
            first, end = s.racks[r, RACK_FIRST], s.racks[r, RACK_END]
            if sum_of_largest(w, w.size, first, end, fewest, gang) >= gang:
                return FEWEST
    return found


@kernel
def in_pool(s: Situation, w: Workspace, job: int, lo: int, hi: int, locality: int) -> int:
    """The best place of a pool within this locality, the closer ones first."""
    gang = s.gpus[job]
    fewest = fewest_servers(w, lo, hi, gang)
    if fewest == 0:
        return 0
    if fewest == 1:
        got = one_server(s, w, lo, hi, gang)
        if got == gang or locality == FEWEST:
            return got
    else:
        locality = max(locality, least_locality(s, w, lo, hi, gang, fewest))
    for level in range(FEWEST if fewest > 1 else ONE_RACK, locality + 1):
        w.marks[N_PICKED] = 0
        if level == ANYWHERE:
            got = several_racks(s, w, lo, hi, gang)
        else:
            got = one_rack(s, w, lo, hi, gang, fewest if level == FEWEST else hi - lo)
        if got == gang:
            break
    return got


@kernel
def seek(s: Situation, w: Workspace, free: Ints, job: int, locality: int) -> int:
    """How many GPUs of its gang a job could have of those free within a locality; they are in `pick`.

    Of several pools the first that holds all of it, else the one that has most.
    """
    gang, best, kept = s.gpus[job], 0, 0
    for p in range(s.pool.shape[0]):
        lo, hi = s.pool[p, POOL_LO], s.pool[p, POOL_HI]
        if (s.pools[job] >> p) & 1 == 0 or hi <= lo:
            continue
        w.marks[N_PICKED] = 0
        look_over(s, w, free, job, lo, hi)
        got = in_pool(s, w, job, lo, hi, locality)
        if got == gang:
            return int(got)
        if got > best:
            best, kept = got, w.marks[N_PICKED]
            for k in range(kept):
                w.kept[k, 0], w.kept[k, 1] = w.pick[k, 0], w.pick[k, 1]
    for k in range(kept):
        w.pick[k, 0], w.pick[k, 1] = w.kept[k, 0], w.kept[k, 1]
    w.marks[N_PICKED] = kept
    return int(best)
