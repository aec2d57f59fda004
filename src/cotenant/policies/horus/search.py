"""Where a job of Horus goes, as a kernel: the cost of every GPU, then the complete placement with the fewest nodes.

The nodes with the cheapest GPUs are seeds, as many as the gang has GPUs; from each the gang takes GPUs of its seed and
of the nodes next to it by number. Jobs are places in the view, memory is MiB.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cotenant.core import columns as col
from cotenant.core.columns import NODE_SIZE, POOL_HI, POOL_LO
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.fit import fed_by
from cotenant.policies.horus.cost import feasible, gpu_cost

MIB = 1024.0


class PricedGpus(NamedTuple):
    """GPUs with the jobs on them, and what a search writes down."""

    users: IntMatrix  # GPUs x places, -1 for nobody
    up: Ints  # by GPU: 1 where it may be given away
    capacity_mib: Floats  # by GPU
    first: Ints  # first GPU of each node, and the end
    node: IntMatrix
    pool: IntMatrix
    hosts: Matrix  # nodes x (cores left, GiB left)
    binds: int  # 1 when cores and host memory are modelled
    util: Floats  # by job: predicted utilisation, per cent
    mib: Floats  # by job: what it has on each of its GPUs
    kind: Ints  # by job
    joins: IntMatrix  # kind x kind: 1 where the two can share a GPU
    barred: Ints  # by GPU: 1 where the job in question must not squeeze in
    slow: Floats  # by GPU: known slowdown of the job in question there, 0 where it is not known
    cost: Floats  # by GPU: found; infinity where the job cannot go
    line: Ints  # from the first GPU of each node on: its feasible GPUs, in the order in which they are taken
    fit: Ints  # by node: how many these are
    tried: Ints  # by node: 1 once it was a seed
    chosen: Ints  # GPUs of the placement tried
    best: Ints  # GPUs of the best placement so far


def lay_out(view: View, util: Floats, before: PricedGpus | None = None) -> PricedGpus:
    """The GPUs as they are now; `util` is predicted by kind. What lasts is taken from an earlier layout of them."""
    site, places = view.site, np.zeros(int(view.rows.max(initial=0)) + 1, np.int64)
    places[view.rows] = np.arange(len(view.rows))
    users = np.where(site.users >= 0, places[site.users], -1)
    up, hosts = site.open.astype(np.int64), np.ascontiguousarray(site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]])
    if before is None or before.first is not site.gpu_first or len(before.joins) != len(site.speed):
        before = _empty(view)
    before.barred[:], before.slow[:] = 0, 0.0
    return before._replace(
        users=users, up=up, node=site.node, hosts=hosts, util=util[view.kind], mib=MIB * view.gpu_gib, kind=view.kind,
        joins=_joins(view),
    )  # fmt: skip


def _empty(view: View) -> PricedGpus:
    """The GPUs of a cluster without anybody."""
    site, none = view.site, np.zeros(0, np.int64)
    gpus, nodes = len(site.users), len(site.node)
    return PricedGpus(
        users=site.users, up=none, capacity_mib=MIB * site.gpu_gib[site.node_type[site.gpu_node]],
        first=site.gpu_first, node=site.node, pool=site.pool, hosts=site.host, binds=int(site.hosts_bind),
        util=np.zeros(0), mib=np.zeros(0), kind=none, joins=_joins(view), barred=np.zeros(gpus, np.int64),
        slow=np.zeros(gpus), cost=np.zeros(gpus), line=np.zeros(gpus, np.int64), fit=np.zeros(nodes, np.int64),
        tried=np.zeros(nodes, np.int64), chosen=np.zeros(gpus, np.int64), best=np.zeros(gpus, np.int64),
    )  # fmt: skip


def _joins(view: View) -> IntMatrix:
    """Kind x kind: 1 where the two can share a GPU."""
    together, kinds = view.facts.together, len(view.site.speed)
    if together is None:
        return np.zeros((kinds, kinds), np.int64)
    return np.asarray(together.ratio.max(axis=2) > 0, np.int64)


@kernel
def cost_on(b: PricedGpus, job: int, need_mib: float, g: int, margin_mib: float, weight: float) -> float:
    """Cost of a GPU; infinity where a job must not go: beside others only with the margin, a place and company known.

    An empty GPU takes whatever asks for it.
    """
    used, held, residents = 0.0, 0.0, 0
    for place in range(b.users.shape[1]):
        other = b.users[g, place]
        if other >= 0:
            if b.joins[b.kind[job], b.kind[other]] == 0:
                return math.inf
            used += min(b.util[other], 100.0)
            held += b.mib[other]
            residents += 1
    if residents > 0 and (b.barred[g] == 1 or not feasible(held, residents, need_mib, b.capacity_mib[g], margin_mib)):
        return math.inf
    return gpu_cost(used, held, residents, b.util[job], need_mib, b.capacity_mib[g], weight, b.slow[g])


@entry
def price(
    b: PricedGpus, job: int, need_mib: float, cpus: float, mem: float, pool: int, margin_mib: float, weight: float,
    cheapest: int,
) -> None:  # fmt: skip
    """Cost of every GPU of a pool for a job, and the feasible ones of each node: cheapest first, or by index.

    No more of a node than its cores and memory can feed; `cpus` and `mem` are what the job needs beside each GPU.
    """
    for n in range(b.pool[pool, POOL_LO], b.pool[pool, POOL_HI]):
        start, count = b.first[n], 0
        for g in range(start, b.first[n + 1]):
            if b.up[g] == 0:
                continue
            b.cost[g] = cost_on(b, job, need_mib, g, margin_mib, weight)
            if b.cost[g] < math.inf:
                at = count
                while cheapest == 1 and at > 0 and b.cost[b.line[start + at - 1]] > b.cost[g]:
                    b.line[start + at] = b.line[start + at - 1]
                    at -= 1
                b.line[start + at] = g
                count += 1
        fed = b.node[n, NODE_SIZE]
        if b.binds == 1:
            fed = fed_by(max(b.hosts[n, 0], 0.0), cpus, fed)
            fed = fed_by(max(b.hosts[n, 1], 0.0), mem, fed)
        b.fit[n] = min(count, fed)


@kernel
def next_seed(b: PricedGpus, lo: int, hi: int) -> int:
    """The node with the cheapest GPU that was no seed yet; -1 where there is none."""
    best, best_cost = -1, math.inf
    for n in range(lo, hi):
        if b.fit[n] > 0 and b.tried[n] == 0:
            cheapest = math.inf
            for k in range(b.first[n], b.first[n] + b.fit[n]):
                cheapest = min(cheapest, b.cost[b.line[k]])
            if cheapest < best_cost:
                best, best_cost = n, cheapest
    return best


@kernel
def take_of(b: PricedGpus, n: int, found: int, gang: int) -> int:
    """Take GPUs of a node until the gang is complete; how many it has then."""
    for k in range(b.first[n], b.first[n] + min(b.fit[n], gang - found)):
        b.chosen[found] = b.line[k]
        found += 1
    return found


@entry
def choose(b: PricedGpus, pool: int, gang: int) -> int:
    """Of the complete placements from the best seeds the one with the fewest nodes; its GPUs go to `b.best`. How many.

    0 where a gang finds too few.
    """
    lo, hi = b.pool[pool, POOL_LO], b.pool[pool, POOL_HI]
    there = 0
    for n in range(lo, hi):
        b.tried[n] = 0
        there += b.fit[n]
    if there < gang:
        return 0
    fewest = hi - lo + 1
    for _ in range(gang):
        seed = next_seed(b, lo, hi)
        if seed < 0:
            break
        b.tried[seed] = 1
        found, nodes = take_of(b, seed, 0, gang), 1
        for distance in range(1, hi - lo):
            for n in (seed - distance, seed + distance):
                if lo <= n < hi and b.fit[n] > 0 and found < gang:
                    found = take_of(b, n, found, gang)
                    nodes += 1
            if found == gang:
                break
        if nodes < fewest:
            fewest = nodes
            for k in range(gang):
                b.best[k] = b.chosen[k]
        if fewest == 1:
            break
    return gang
