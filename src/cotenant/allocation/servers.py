"""Finding servers for a gang and booking them: whole on one server, or split with equal shares per GPU."""

from __future__ import annotations

from cotenant.allocation.tables import *
from cotenant.core.jit import entry, kernel
from cotenant.placement.fit import USABLE, gather, one_node

EPS = 1e-6


@kernel
def holds(p: Packing, n: int, gpus: int, cpus: float, mem: float) -> bool:
    """Whether a server can give this many GPUs with so much beside each."""
    return bool(
        p.free[n, GPU] >= gpus and p.free[n, CORES] + EPS >= gpus * cpus and p.free[n, MEMORY] + EPS >= gpus * mem
    )


@kernel
def _badness(p: Packing, n: int, fit: int, gpus: int, cpus: float, mem: float) -> float:
    """Smaller is the better server for this way of choosing; the first of equals is taken."""
    if fit == FEWEST_GPUS:
        return float(p.free[n, GPU])
    if fit == LEAST_WANTED:
        return float(p.load[n])
    g, c, m = p.free[n, GPU] / p.cap[n, GPU], p.free[n, CORES] / p.cap[n, CORES], p.free[n, MEMORY] / p.cap[n, MEMORY]
    if fit == ALIGNED:
        return float(
            -(g * gpus / p.cap[n, GPU] + c * gpus * cpus / p.cap[n, CORES] + m * gpus * mem / p.cap[n, MEMORY])
        )
    return float(g + c + m)


@kernel
def one_server(p: Packing, lo: int, hi: int, gpus: int, cpus: float, mem: float, fit: int) -> int:
    """A server that holds the whole gang, or -1."""
    best, least = -1, 0.0
    for n in range(lo, hi):
        if not holds(p, n, gpus, cpus, mem):
            continue
        if fit == FIRST_FIT:
            return n
        badness = _badness(p, n, fit, gpus, cpus, mem)
        if best < 0 or badness < least - 1e-12:
            best, least = n, badness
    return best


@kernel
def _feeds(p: Packing, n: int, gpus: int, cpus: float, mem: float) -> int:
    """How many GPUs of a gang a server can take with so much beside each."""
    count = min(int(p.free[n, GPU]), gpus)
    while count > 0 and not holds(p, n, count, cpus, mem):
        count -= 1
    return count


@kernel
def split_in_order(p: Packing, lo: int, hi: int, gpus: int, cpus: float, mem: float) -> int:
    """GPU by GPU in the order of the servers, into `pick`; how many servers, 0 if there are too few."""
    left, found = gpus, 0
    for n in range(lo, hi):
        if left == 0:
            break
        count = _feeds(p, n, left, cpus, mem)
        if count > 0:
            p.pick[found, 0], p.pick[found, 1] = n, count
            found += 1
            left -= count
    return found if left == 0 else 0


@kernel
def _picked(p: Packing, found: int, n: int) -> bool:
    seen = False
    for k in range(found):
        seen = seen or p.pick[k, 0] == n
    return seen


@kernel
def split_widely(p: Packing, lo: int, hi: int, gpus: int, cpus: float, mem: float) -> int:
    """Fewest servers first: each time the one that takes most of what is left, and of those the fullest."""
    left, found = gpus, 0
    while left > 0:
        best, most = -1, 0
        for n in range(lo, hi):
            if p.free[n, GPU] < 1 or _picked(p, found, n):
                continue
            count = _feeds(p, n, left, cpus, mem)
            if count > most or (count == most and count > 0 and p.free[n, GPU] < p.free[best, GPU]):
                best, most = n, count
        if best < 0:
            return 0
        p.pick[found, 0], p.pick[found, 1] = best, most
        found += 1
        left -= most
    return found


@kernel
def by_gpus_only(p: Packing, lo: int, hi: int, gpus: int, lowest: bool) -> int:
    """Servers by free GPUs, whatever else is left: one that holds the gang, else the emptiest gaps first.

    Of several that hold it the one with fewest free GPUs; `lowest` takes the first instead for gangs.
    """
    for n in range(lo, hi):
        p.open[n, USABLE] = int(p.free[n, GPU])
    best = -1
    if lowest and gpus > 1:
        for n in range(hi - 1, lo - 1, -1):
            best = n if p.open[n, USABLE] >= gpus else best
    else:
        best = one_node(p.open, lo, hi, gpus, False, USABLE)
    if best >= 0:
        p.pick[0, 0], p.pick[0, 1] = best, gpus
        return 1
    return int(gather(p.open, p.pick, lo, hi, gpus, True))


@kernel
def find(p: Packing, lo: int, hi: int, k: int, cpus: float, mem: float, fit: int) -> int:
    """Servers for job k with so much beside each GPU, into `pick`; how many, 0 for none."""
    gpus = p.gpus[k]
    if fit == FIRST_FIT:
        return split_in_order(p, lo, hi, gpus, cpus, mem)
    n = one_server(p, lo, hi, gpus, cpus, mem, fit)
    if n >= 0:
        p.pick[0, 0], p.pick[0, 1] = n, gpus
        return 1
    if gpus == 1:
        return 0
    for n in range(lo, hi):  # a gang that one server could take by its GPUs is not torn apart for cores or memory
        if p.free[n, GPU] >= gpus:
            return 0
    return split_widely(p, lo, hi, gpus, cpus, mem)


@kernel
def sits(p: Packing, k: int, cpus: float, mem: float) -> bool:
    """Whether the servers on which job k is kept can give it so much per GPU."""
    for s in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
        n, gpus = p.slices[s, NODE], p.slices[s, TAKEN]
        if p.free[n, CORES] + EPS < gpus * cpus or p.free[n, MEMORY] + EPS < gpus * mem:
            return False
    return True


@kernel
def book(p: Packing, k: int, found: int) -> None:
    """Turn `pick` into the slices of job k and take its GPUs; nothing beside them yet."""
    p.at[k, BEGIN], p.at[k, COUNT] = p.x[0], found
    for s in range(found):
        row = p.x[0]
        n, gpus = p.pick[s, 0], p.pick[s, 1]
        p.slices[row, OF], p.slices[row, NODE], p.slices[row, TAKEN] = k, n, gpus
        p.x[0] = row + 1
        seat(p, k, n, gpus)


@kernel
def seat(p: Packing, k: int, n: int, gpus: int) -> None:
    """Job k sits on a server with this many GPUs."""
    p.free[n, GPU] -= gpus
    p.load[n] += gpus * p.want[k, 0]
    for place in range(p.on.shape[1]):
        if p.on[n, place] < 0:
            p.on[n, place] = k
            break


@kernel
def give(p: Packing, k: int, cpus: float, mem: float, speed: float) -> None:
    """Change what a placed job has beside each GPU."""
    for s in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
        n, gpus = p.slices[s, NODE], p.slices[s, TAKEN]
        p.free[n, CORES] -= gpus * (cpus - p.got[k, 0])
        p.free[n, MEMORY] -= gpus * (mem - p.got[k, 1])
    p.got[k, 0], p.got[k, 1], p.got[k, 2] = cpus, mem, speed


@kernel
def place(p: Packing, lo: int, hi: int, k: int, cpus: float, mem: float, speed: float, fit: int) -> bool:
    """Put job k somewhere with so much per GPU, or where it is kept; whether that worked."""
    if p.kept[k] == 1:
        if not sits(p, k, cpus, mem):
            return False
    else:
        found = find(p, lo, hi, k, cpus, mem, fit)
        if found == 0:
            return False
        book(p, k, found)
    give(p, k, cpus, mem, speed)
    return True


@kernel
def kept_local(p: Packing, n: int, gib: float) -> float:
    """Speed of one that takes so much memory of a server, some of it borrowed; 0 where even that is too little."""
    if p.free[n, MEMORY] + p.lend[n, LENT_GIB] + EPS < gib:
        return 0.0
    borrowed = max(gib - max(p.free[n, MEMORY], 0.0), 0.0)
    return 1.0 - borrowed / gib * (1.0 - p.lend[n, LENT_SPEED]) if gib > 0 else 1.0


@kernel
def place_borrowing(p: Packing, lo: int, hi: int, k: int, cpus: float, mem: float, speed: float, least: float) -> bool:
    """Put job k where it is fastest with memory that its server borrows, if that is faster than `least`.

    Only whole gangs look for such a server; one that is kept on several stays if each can borrow enough.
    """
    gpus, best, most = p.gpus[k], -1, least
    if p.x[1] == 0:
        return False
    if p.kept[k] == 1:
        slowest = 1.0
        for s in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
            n, taken = p.slices[s, NODE], p.slices[s, TAKEN]
            enough = p.free[n, CORES] + EPS >= taken * cpus
            slowest = min(slowest, kept_local(p, n, taken * mem) if enough else 0.0)
        if speed * slowest <= least:
            return False
    else:
        for n in range(lo, hi):
            if p.free[n, GPU] >= gpus and p.free[n, CORES] + EPS >= gpus * cpus:
                reached = speed * kept_local(p, n, gpus * mem)
                if reached > most + 1e-12:
                    best, most = n, reached
        if best < 0:
            return False
        p.pick[0, 0], p.pick[0, 1] = best, gpus
        book(p, k, 1)
    give(p, k, cpus, mem, speed)
    return True


@entry
def put(p: Packing, k: int, n: int, cpus: float, mem: float, speed: float) -> bool:
    """Seat job k whole on a given server with so much per GPU, if it fits there."""
    if not holds(p, n, p.gpus[k], cpus, mem):
        return False
    p.pick[0, 0], p.pick[0, 1] = n, p.gpus[k]
    book(p, k, 1)
    give(p, k, cpus, mem, speed)
    return True


@entry
def keep(p: Packing, k: int, found: int) -> None:
    """Job k stays on the servers in `pick`."""
    book(p, k, found)
    p.kept[k] = 1
