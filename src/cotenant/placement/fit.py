"""Where a gang goes. Every rule looks at GPUs per node that it may use and writes (node, GPUs) pairs.

`consolidated` takes one node if the gang fits one (best fit: fewest free GPUs that suffice, lowest index),
else whole empty nodes and, for a remainder, the emptiest other node; it waits rather than spread (as
Helios' simulator does). `anywhere` takes one node if it can and else fills the smallest gaps first.
`spread` deals GPUs one by one to the emptiest nodes. Counting GPUs only is the same code on one big node.
A gang that names its number of nodes gets exactly so many, in equal parts, under every rule but counting.
A gang never spans two pools. Compiled orders call this on the engine's tables (`find_place`), policies that lay out
nodes themselves on a picture of them (`cotenant.placement.room`).
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, State

# Columns of `State.open`, and which of them a search may use; BOTH and LATEST are no columns.
UNCLAIMED, IDLE_NOW, USABLE, TAIL = 0, 1, 2, 3
BOTH, LATEST = 4, 5
_SHIFT, _NOWHERE = 2**20, 2**62


@kernel
def one_node(open_: IntMatrix, lo: int, hi: int, gpus: int, displacing: bool, column: int) -> int:
    """The node for a gang that fits one node, or -1; `column` says what is usable.

    Among idle GPUs best fit; when others may be displaced, the node where the fewest are. What counts and the number
    of the node are one number, so that nothing has to be guessed ahead inside the loop.
    """
    best = _NOWHERE
    if displacing:
        for n in range(lo, hi):
            free, busy = open_[n, column], gpus - min(max(open_[n, IDLE_NOW], 0), gpus)
            best = min(best, (busy * _SHIFT + free) * _SHIFT + n if free >= gpus else _NOWHERE)
    else:
        for n in range(lo, hi):
            free = open_[n, column]
            best = min(best, free * _SHIFT + n if free >= gpus else _NOWHERE)
    return int(best % _SHIFT) if best < _NOWHERE else -1


@kernel
def whole_nodes(open_: IntMatrix, pick: IntMatrix, lo: int, hi: int, gpus: int, largest: int, column: int) -> int:
    """A gang larger than a node: whole empty nodes in order, the remainder on the emptiest other node; `column` says
    what is usable."""
    needed = gpus // largest
    rest = gpus - needed * largest
    count = 0
    rest_node = -1
    rest_free = 0
    for n in range(lo, hi if rest == 0 else lo):
        if open_[n, column] == largest:
            pick[count, 0], pick[count, 1] = n, largest
            count += 1
            if count == needed:
                return count
    for n in range(lo, hi if rest > 0 else lo):
        free = open_[n, column]
        if count < needed and free == largest:
            pick[count, 0], pick[count, 1] = n, largest
            count += 1
        elif free >= rest and free > rest_free:
            rest_node, rest_free = n, free
    if count < needed or rest_node < 0:
        return 0
    pick[count, 0], pick[count, 1] = rest_node, rest
    return count + 1


@entry
def gather(open_: IntMatrix, pick: IntMatrix, lo: int, hi: int, gpus: int, fullest_first: bool) -> int:
    """GPUs from as many nodes as it takes: fullest nodes first fills gaps, emptiest first uses few nodes."""
    total = 0
    largest = 0
    for n in range(lo, hi):
        free = open_[n, USABLE]
        if free > 0:
            total += free
            largest = max(largest, free)
    if total < gpus:
        return 0
    count = 0
    for step in range(largest):
        level = step + 1 if fullest_first else largest - step
        for n in range(lo, hi):
            if open_[n, USABLE] == level:
                take = min(level, gpus)
                pick[count, 0], pick[count, 1] = n, take
                count += 1
                gpus -= take
                if gpus == 0:
                    return count
    return 0


@kernel
def equal_parts(
    open_: IntMatrix, pick: IntMatrix, lo: int, hi: int, parts: int, each: int, emptiest: bool, displacing: bool
) -> int:
    """A gang in equal parts on exactly so many nodes: best fit, or the emptiest ones; the fewest displaced first."""
    for count in range(parts):
        best, best_idle, best_free = -1, 0, 0
        for n in range(lo, hi):
            free = open_[n, USABLE]
            if free < each:
                continue
            idle = min(max(open_[n, IDLE_NOW], 0), each) if displacing else 0
            fits_better = free > best_free if emptiest else free < best_free
            if best < 0 or idle > best_idle or (idle == best_idle and fits_better):
                best, best_idle, best_free = n, idle, free
        if best < 0:
            return 0
        pick[count, 0], pick[count, 1] = best, each
        open_[best, USABLE] = 0
    return parts


@kernel
def deal(open_: IntMatrix, pick: IntMatrix, lo: int, hi: int, gpus: int) -> int:
    """One GPU at a time to the node with the most GPUs left, lowest index on ties."""
    count = 0
    for _ in range(gpus):
        best, best_free, best_at = -1, 0, -1
        for n in range(lo, hi):
            free = open_[n, USABLE]
            at = -1
            for k in range(count):
                if pick[k, 0] == n:
                    at = k
                    free -= pick[k, 1]
                    break
            if free > best_free:
                best, best_free, best_at = n, free, at
        if best < 0:
            return 0
        if best_at < 0:
            pick[count, 0], pick[count, 1] = best, 1
            count += 1
        else:
            pick[best_at, 1] += 1
    return count


@entry
def fed_by(amount: float, per_gpu: float, most: int) -> int:
    """How many of `most` GPUs this many cores (or GiB) can feed; the amount may be infinite."""
    if per_gpu <= 0 or amount >= most * per_gpu:
        return int(most)
    return int(amount / per_gpu + 1e-9)


@kernel
def size_when_empty(host: Matrix, node: IntMatrix, n: int, cpus_per_gpu: float, mem_per_gpu: float) -> int:
    """GPUs of an empty node that its cores and memory can feed."""
    size = int(node[n, NODE_SIZE])
    return fed_by(host[n, HOST_MEM_CAP], mem_per_gpu, fed_by(host[n, HOST_CPU_CAP], cpus_per_gpu, size))


@kernel
def holds_whole(
    host: Matrix, node: IntMatrix, lo: int, hi: int, gpus: int, largest: int, cpus_per_gpu: float, mem_per_gpu: float
) -> bool:
    """Whether an empty pool has the whole nodes for a gang, and one more for its remainder.

    With nodes of different sizes it may not; such a gang would wait for ever if it insisted on them.
    """
    needed = gpus // largest
    rest = gpus - needed * largest
    whole = 0
    next_largest = 0
    for n in range(lo, hi):
        size = size_when_empty(host, node, n, cpus_per_gpu, mem_per_gpu)
        if size == largest:
            whole += 1
        else:
            next_largest = max(next_largest, size)
    return whole > needed or (whole == needed and next_largest >= rest)


@kernel
def _limit_by_host(
    open_: IntMatrix,
    open_host: Matrix,
    host: Matrix,
    node: IntMatrix,
    lo: int,
    hi: int,
    cpus_per_gpu: float,
    mem_per_gpu: float,
    source: int,
) -> int:
    """Cut the usable GPUs of each node to what its cores and memory can feed; the largest empty node."""
    largest = 0
    for n in range(lo, hi):
        usable = open_[n, USABLE]
        cpus, mem = open_host[n, 0], open_host[n, 2]
        if source != UNCLAIMED:
            cpus, mem = open_host[n, 1], open_host[n, 3]
        if source == BOTH:
            cpus, mem = min(cpus, open_host[n, 0]), min(mem, open_host[n, 2])
        open_[n, USABLE] = fed_by(mem, mem_per_gpu, fed_by(cpus, cpus_per_gpu, usable))
        largest = max(largest, size_when_empty(host, node, n, cpus_per_gpu, mem_per_gpu))
    return int(largest)


@kernel
def find_place(s: State, c: int, job: int, source: int) -> int:
    """Find a place for a job of class c; pairs go to `s.pick`, the answer is how many (0: none).

    `source` says which GPUs are usable: UNCLAIMED (those of running jobs further back in the order too),
    IDLE_NOW, BOTH (idle now and not promised to a reservation), or LATEST (idle once the tail of the order leaves).
    """
    for p in range(s.pool.shape[0]):
        count = find_place_in(s, c, job, source, p, s.cls[c, C_MODE])
        if count > 0:
            return count
    return 0


@kernel
def find_place_in(s: State, c: int, job: int, source: int, p: int, mode: int) -> int:
    """The same in one pool, by one placement mode; none in a pool that the class may not use."""
    if not (s.cls[c, C_POOLS] >> p) & 1:
        return 0
    gpus, largest = s.cls[c, C_GPUS], s.pool[p, POOL_LARGEST]
    if s.x[USE_HOST] == 0 and s.cls[c, C_NODES] == 0 and mode == CONSOLIDATED and source != BOTH:
        column = TAIL if source == LATEST else source  # one scan, and no copy of what is usable
        if gpus <= largest:
            n = one_node(s.open, s.pool[p, POOL_LO], s.pool[p, POOL_HI], gpus, source != IDLE_NOW, column)
            s.pick[0, 0], s.pick[0, 1] = n, gpus
            return 1 if n >= 0 else 0
        if s.pool[p, POOL_LARGEST_COUNT] > gpus // largest:
            return whole_nodes(s.open, s.pick, s.pool[p, POOL_LO], s.pool[p, POOL_HI], gpus, largest, column)
    cpus, mem = s.f[job, CPUS] / s.i[job, GPUS], s.f[job, MEM] / s.i[job, GPUS]
    largest = usable(s.open, s.open_host, s.host, s.node, s.pool, p, cpus, mem, source, s.x[USE_HOST])
    displacing = source in (UNCLAIMED, LATEST)
    return seek(
        s.open, s.pick, s.host, s.node, s.pool, p, gpus, s.cls[c, C_NODES], cpus, mem, mode, largest, displacing
    )


@entry
def usable(
    open_: IntMatrix, open_host: Matrix, host: Matrix, node: IntMatrix, pool: IntMatrix, p: int,
    cpus_per_gpu: float, mem_per_gpu: float, source: int, hosts_bind: int,
) -> int:  # fmt: skip
    """Write down how many GPUs of each node of a pool a gang may use; the most that one empty node could give it."""
    lo, hi, largest = pool[p, POOL_LO], pool[p, POOL_HI], pool[p, POOL_LARGEST]
    for n in range(lo, hi):
        if source == BOTH:
            open_[n, USABLE] = min(open_[n, UNCLAIMED], open_[n, IDLE_NOW])
        elif source == LATEST:
            open_[n, USABLE] = max(open_[n, TAIL], 0)
        else:
            open_[n, USABLE] = open_[n, source]
    if hosts_bind == 1 and (cpus_per_gpu > 0 or mem_per_gpu > 0):
        fed = _limit_by_host(open_, open_host, host, node, lo, hi, cpus_per_gpu, mem_per_gpu, source)
        largest = max(min(fed, largest), 1)
    return int(largest)


@entry
def seek(
    open_: IntMatrix, pick: IntMatrix, host: Matrix, node: IntMatrix, pool: IntMatrix, p: int, gpus: int, parts: int,
    cpus_per_gpu: float, mem_per_gpu: float, mode: int, largest: int, displacing: bool,
) -> int:  # fmt: skip
    """A place for a gang among the usable GPUs of a pool, by a placement mode: (node, GPUs) pairs go to `pick`."""
    lo, hi = pool[p, POOL_LO], pool[p, POOL_HI]
    count = 0
    if parts > 0:
        count = equal_parts(open_, pick, lo, hi, parts, gpus // parts, mode == SPREAD, displacing)
    elif mode != SPREAD and gpus <= largest:
        n = one_node(open_, lo, hi, gpus, displacing, USABLE)
        if n >= 0:
            pick[0, 0], pick[0, 1] = n, gpus
            count = 1
        elif mode == ANYWHERE:
            count = gather(open_, pick, lo, hi, gpus, True)
    elif mode == CONSOLIDATED:
        alike = cpus_per_gpu == 0.0 and mem_per_gpu == 0.0 and pool[p, POOL_LARGEST_COUNT] > gpus // largest
        if alike or holds_whole(host, node, lo, hi, gpus, largest, cpus_per_gpu, mem_per_gpu):
            count = whole_nodes(open_, pick, lo, hi, gpus, largest, USABLE)
        else:
            count = gather(open_, pick, lo, hi, gpus, False)
    elif mode == ANYWHERE:
        count = gather(open_, pick, lo, hi, gpus, True)
    else:
        count = deal(open_, pick, lo, hi, gpus)
    return int(count)


@entry
def fewest_nodes(node: IntMatrix, pool: IntMatrix, p: int, gpus: int) -> int:
    """How many nodes of an empty pool a gang needs; using more counts as spread."""
    largest = pool[p, POOL_LARGEST]
    if gpus <= pool[p, POOL_LARGEST_COUNT] * largest:
        return int((gpus + largest - 1) // largest)
    left = gpus
    count = 0
    for step in range(largest):
        for n in range(pool[p, POOL_LO], pool[p, POOL_HI]):
            if node[n, NODE_SIZE] == largest - step and left > 0:
                left -= largest - step
                count += 1
    return int(count)
