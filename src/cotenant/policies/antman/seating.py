"""Where guaranteed jobs of AntMan go, as kernels over the GPUs: each looks only at other guaranteed jobs.

A job takes a node with just enough GPUs that no guaranteed job has or holds, those with the fewest opportunistic jobs
first; one that finds too few holds the best part of its gang. Jobs that would sit down beside others, ask for equal
parts, or need cores and memory of the hosts are left to the policy, one by one. Jobs are places in the view.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotenant.core import columns as col
from cotenant.core.columns import CONSOLIDATED, POOL_HI, POOL_LARGEST, POOL_LO, SLOTS
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.fit import IDLE_NOW, gather, seek, usable

FULL, STARTS, HOLDS, LATER = 0, 1, 2, 3  # what becomes of a job: no GPU is left, ..., its tenant has no quota


class Floor(NamedTuple):
    """The GPUs, who has them, and what a search writes down."""

    taken: Ints  # by GPU: 1 where a guaranteed job has or holds it
    jobs: Floats  # by GPU: how many
    least_gib: Floats  # by GPU: what they keep at least
    up: Ints  # by GPU: 1 where it may be given away
    capacity: Floats  # by GPU: GiB
    first: Ints  # first GPU of each node, and the end
    node: IntMatrix
    host: Matrix
    pool: IntMatrix
    open: IntMatrix  # nodes x columns of `placement.fit`
    open_host: Matrix
    pick: IntMatrix
    line: Ints  # from the first GPU of each node on: its usable GPUs, in the order in which they are taken
    free: Ints  # by node: how many these are
    outcome: Ints  # by place in the queue
    begin: Ints  # by place in the queue: where its GPUs begin
    seats: Ints  # GPUs that were given away or are held, job after job


class Asking(NamedTuple):
    """What jobs ask for."""

    gpus: Ints
    tenant: Ints
    kind: Ints
    pools: Ints
    parts: Ints
    tier: Floats
    cpus: Floats
    mem_gib: Floats


def lay_floor(view: View) -> Floor:
    """The GPUs of a cluster without anybody."""
    site = view.site
    gpus, nodes = len(site.users), len(site.node)
    left = site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]]
    return Floor(
        taken=np.zeros(gpus, np.int64), jobs=np.zeros(gpus), least_gib=np.zeros(gpus), up=site.open.astype(np.int64),
        capacity=site.gpu_gib[site.node_type[site.gpu_node]], first=site.gpu_first, node=site.node, host=site.host,
        pool=site.pool, open=np.zeros((nodes, 4), np.int64), open_host=np.repeat(left, 2, axis=1),
        pick=np.zeros((int(site.node[:, col.NODE_SIZE].sum()) + 1, 2), np.int64), line=np.zeros(gpus, np.int64),
        free=np.zeros(nodes, np.int64), outcome=np.zeros(0, np.int64), begin=np.zeros(0, np.int64),
        seats=np.zeros(gpus + 1, np.int64),
    )  # fmt: skip


def asking(view: View) -> Asking:
    """What the jobs of a view ask for."""
    return Asking(
        view.asked_gpus, view.tenant, view.kind, view.open_pools, view.parts, view.tier, view.cpus, view.mem_gib
    )


@entry
def fill(b: Floor, held: IntMatrix, kind: Ints, guaranteed: Ints, kinds_gib: Floats) -> None:
    """See who has which GPUs: `held` as in the view, and by kind what a squeezed job keeps."""
    for g in range(len(b.taken)):
        b.taken[g], b.jobs[g], b.least_gib[g] = 0, 0.0, 0.0
    for k in range(len(held)):
        job, g, mask = held[k, 0], b.first[held[k, 1]], held[k, 3]
        while mask:
            if mask & 1:
                b.jobs[g] += 1.0
                b.least_gib[g] += kinds_gib[kind[job]]
                b.taken[g] = max(b.taken[g], guaranteed[job])
            mask >>= 1
            g += 1


@kernel
def line_up(b: Floor, p: int, need: float) -> None:
    """The GPUs of each node that a job could have, those with the fewest jobs first."""
    for n in range(b.pool[p, POOL_LO], b.pool[p, POOL_HI]):
        start, found = b.first[n], 0
        for g in range(start, b.first[n + 1]):
            fits = need <= b.capacity[g] - b.least_gib[g] + 1e-9
            if b.up[g] == 1 and b.taken[g] == 0 and b.jobs[g] < SLOTS and fits:
                at = found
                while at > 0 and b.jobs[b.line[start + at - 1]] > b.jobs[g]:
                    b.line[start + at] = b.line[start + at - 1]
                    at -= 1
                b.line[start + at] = g
                found += 1
        b.free[n] = found


@kernel
def best_nodes(b: Floor, p: int, gang: int) -> None:
    """Open the nodes of a pool to a search: where some hold the whole gang, only those with the fewest jobs there."""
    lo, hi = b.pool[p, POOL_LO], b.pool[p, POOL_HI]
    best = -1.0
    for n in range(lo, hi):
        if b.free[n] >= gang:
            price = price_on(b, n, gang)
            best = price if best < 0 else min(best, price)
    for n in range(lo, hi):
        opened = best < 0 or (b.free[n] >= gang and price_on(b, n, gang) == best)
        b.open[n, IDLE_NOW] = b.free[n] if opened else 0


@kernel
def price_on(b: Floor, n: int, gang: int) -> float:
    """Jobs on the GPUs of a node that a gang would take."""
    price = 0.0
    for k in range(b.first[n], b.first[n] + gang):
        price += b.jobs[b.line[k]]
    return price


@kernel
def find_seats(b: Floor, p: int, gang: int, need: float, cpus: float, mem: float, at: int) -> int:
    """GPUs of a pool for a whole gang go to `b.seats` from `at` on; how many."""
    line_up(b, p, need)
    best_nodes(b, p, gang)
    largest = usable(b.open, b.open_host, b.host, b.node, b.pool, p, cpus, mem, IDLE_NOW, 0)
    count = seek(b.open, b.pick, b.host, b.node, b.pool, p, gang, 0, cpus, mem, CONSOLIDATED, largest, False)
    if count == 0 and gang > b.pool[p, POOL_LARGEST]:
        count = gather(b.open, b.pick, b.pool[p, POOL_LO], b.pool[p, POOL_HI], gang, False)
    found = 0
    for k in range(count):
        for q in range(b.pick[k, 1]):
            b.seats[at + found] = b.line[b.first[b.pick[k, 0]] + q]
            found += 1
    return found


@kernel
def find_part(b: Floor, p: int, gang: int, need: float, at: int, most: int) -> int:
    """The best part of a gang, if that is more than `most`: on one node if it would fit there, else anywhere."""
    lo, hi, largest = b.pool[p, POOL_LO], b.pool[p, POOL_HI], 0
    line_up(b, p, need)
    best, best_free, total = -1, most, 0
    for n in range(lo, hi):
        largest = max(largest, b.first[n + 1] - b.first[n])
        total += b.free[n]
        if min(b.free[n], gang) > best_free:
            best, best_free = n, min(b.free[n], gang)
    if gang > largest:
        best, best_free = lo, min(total, gang)
    if best < 0 or best_free <= most:
        return most
    found = 0
    for n in range(best, hi if gang > largest else best + 1):
        for g in range(b.first[n], b.first[n + 1]):
            fits = need <= b.capacity[g] - b.least_gib[g] + 1e-9
            if found < gang and b.up[g] == 1 and b.taken[g] == 0 and b.jobs[g] < SLOTS and fits:
                b.seats[at + found] = g
                found += 1
    return found


@entry
def seat(b: Floor, asks: Asking, queue: Ints, start: int, at: int, needs: Floats, quota: Ints) -> int:
    """Seat jobs of a queue from `start` on, whose GPUs go to `b.seats` from `at` on; the first that is left to others.

    `needs` is their memory by kind, `quota` what tenants have left.
    """
    untaken = 0
    for g in range(len(b.taken)):
        untaken += 1 - b.taken[g]
    for k in range(start, len(queue)):
        job = queue[k]
        gang, tenant, need = asks.gpus[job], asks.tenant[job], needs[asks.kind[job]]
        b.begin[k], b.outcome[k] = at, FULL
        if asks.tier[job] > 0 or quota[tenant] < gang:
            b.outcome[k] = LATER
            continue
        if untaken > 0 and asks.parts[job] > 0:
            return k
        found, whole = 0, False
        for p in range(b.pool.shape[0]):
            if untaken > 0 and not whole and (asks.pools[job] >> p) & 1:
                found = find_seats(b, p, gang, need, asks.cpus[job] / gang, asks.mem_gib[job] / gang, at)
                whole = found > 0
        for q in range(at, at + found):
            if b.jobs[b.seats[q]] > 0:
                return k
        for p in range(b.pool.shape[0]):
            if untaken > 0 and not whole and (asks.pools[job] >> p) & 1:
                found = find_part(b, p, gang, need, at, found)
        quota[tenant] -= gang
        if untaken > 0:
            b.outcome[k] = STARTS if whole else HOLDS
        for q in range(at, at + found):
            b.taken[b.seats[q]] = 1
            if whole:
                b.jobs[b.seats[q]] = 1.0
        untaken -= found
        at += found
    b.begin[len(queue)] = at
    return len(queue)
