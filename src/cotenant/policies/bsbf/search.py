"""One scheduling step of SJF-BSBF over the waiting jobs, as a kernel: where each could start, alone or shared.

Nodes are walked by the number of jobs on them. Enough empty GPUs: never share. Otherwise hosts that pass the pair test
join, lowest mean first, and the whole placement is judged by what it does to everybody in it: the sum of completion
times when the job starts now against that when it waits for the last of its hosts, a gang moving at its slowest GPU.
With QUEUE the hosts that lose least come first, and sharing must also beat waiting for the next GPUs that fall empty,
after the jobs ahead in the order.
Smaller sub-batches are for GPUs that lack the memory only; the level that costs least wins, on ties the larger batch.
With PAPER it is the published rule: every host is judged alone, and every sub-batch is tried.
"""

from __future__ import annotations

import math

from cotenant.core.columns import NODE_CAP, NODE_POOL, NODE_SIZE, POOL_HI, POOL_LO, POOL_TYPE, SLOTS
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Cube, Matrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.bsbf.judging import cost, last_end, mean_of_pairs, xi
from cotenant.policies.bsbf.pair_test import pays, shared_mean
from cotenant.policies.bsbf.scratch import (
    CONSOLIDATE,
    MOST,
    NO_GPUS,
    NO_MEMORY,
    OVER_QUOTA,
    PAPER,
    QUEUE,
    SCALE,
    SOFT,
    STARTED,
    TEST,
    WAITING_PAYS,
    Scene,
    Scratch,
)
from cotenant.policies.bsbf.squeezing import fits_beside


@kernel
def order_nodes(s: Scene, w: Scratch, p: int) -> None:
    """Nodes of a pool by the number of jobs on them, then by index; from the order of before, which is nearly it."""
    lo = s.pool[p, POOL_LO]
    for at in range(lo + 1, s.pool[p, POOL_HI]):
        k, n = at, w.nodes[at]
        while k > lo and (
            w.load[w.nodes[k - 1]] > w.load[n] or (w.load[w.nodes[k - 1]] == w.load[n] and w.nodes[k - 1] > n)
        ):
            w.nodes[k] = w.nodes[k - 1]
            k -= 1
        w.nodes[k] = n
    w.lined[p] = 1


@kernel
def sift(freed: Floats, lo: int, top: int, end: int) -> None:
    """Let the value at `top` of a heap that begins at `lo` sink to its place."""
    at = top
    while lo + 2 * (at - lo) + 1 < end:
        child = lo + 2 * (at - lo) + 1
        if child + 1 < end and freed[child + 1] > freed[child]:
            child += 1
        if freed[at] >= freed[child]:
            return
        freed[at], freed[child] = freed[child], freed[at]
        at = child


@kernel
def wait_for(s: Scene, w: Scratch, p: int, gpus: int) -> float:
    """How long a job would wait for this many empty GPUs of a pool, after those ahead of it, as believed; seconds."""
    lo, hi = s.gpu_first[s.pool[p, POOL_LO]], s.gpu_first[s.pool[p, POOL_HI]]
    if w.sorted[p] == 0:
        for k in range((hi - lo) // 2 + 1):
            sift(w.freed, lo, lo + (hi - lo) // 2 - k, hi)
        for k in range(hi - lo - 1):
            end = hi - 1 - k
            w.freed[lo], w.freed[end] = w.freed[end], w.freed[lo]
            sift(w.freed, lo, lo, end)
        w.sorted[p] = 1
    at = lo + w.ahead[p] + gpus - 1
    return float(w.freed[at]) if at < hi else math.inf


@kernel
def feeds(s: Scene, w: Scratch, job: int, node: int, gpus: int) -> bool:
    """Whether a node has the cores and memory for this many GPUs of a job."""
    if s.hosts_bind == 0:
        return True
    part = gpus / s.gpus[job]
    return bool(w.room[node, 0] >= part * s.cpus[job] - 1e-9 and w.room[node, 1] >= part * s.mem_gib[job] - 1e-9)


@kernel
def count_usable(s: Scene, w: Scratch, job: int, lo: int, hi: int, need: float) -> tuple[int, int, int]:
    """GPUs of the walk [lo, hi) with a place left: empty ones (they go to `w.empty`), shared ones, those too full."""
    empty, shared, full = 0, 0, 0
    for k in range(lo, hi):
        n = w.nodes[k]
        if s.node[n, NODE_CAP] == 0 or not feeds(s, w, job, n, 1):
            continue
        taken = 0
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            if w.gib[g] < need:
                full += 1 if w.users[g, MOST - 1] < 0 else 0
                continue
            if not feeds(s, w, job, n, taken + 1):
                continue
            if w.users[g, 0] < 0:
                w.empty[empty] = g
                empty += 1
                taken += 1
            elif w.users[g, MOST - 1] < 0:
                shared += 1
    return empty, shared, full


@kernel
def count_tight(s: Scene, w: Scratch, job: int, level: int, lo: int, hi: int, gpu_type: int) -> int:
    """GPUs of the walk with one job beside which this one would not have all its memory, where memory gives."""
    tight = 0
    for k in range(lo, hi):
        n = w.nodes[k]
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            host = w.users[g, 0]
            if s.node[n, NODE_CAP] > 0 and host >= 0 and w.users[g, MOST - 1] < 0:
                tight += 0 if fits_beside(s, job, level, host, w.level[host], gpu_type) else 1
    return tight


@kernel
def find_hosts(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, job: int, level: int, l_a: float,
    lo: int, hi: int, need: float, gpu_type: int, flags: Ints,
) -> int:  # fmt: skip
    """Hosts of the walk, each once, that pass the pair test, by their means (or as met, without a test).

    With QUEUE by what sharing with each costs in all.
    """
    count = 0
    stamp = -2 - job  # nodes mark by their numbers
    for k in range(lo, hi):
        n = w.nodes[k]
        if s.node[n, NODE_CAP] == 0 or not feeds(s, w, job, n, 1):
            continue
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            host = w.users[g, 0]
            if host >= 0 and w.users[g, 1] < 0 and w.gib[g] >= need:
                w.mark[host] = -1
    for k in range(lo, hi):
        n = w.nodes[k]
        if s.node[n, NODE_CAP] == 0 or not feeds(s, w, job, n, 1):
            continue
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            host = w.users[g, 0]
            if host < 0 or w.users[g, 1] >= 0 or w.gib[g] < need:
                continue
            known = w.mark[host] == stamp
            w.mark[host] = stamp
            if known:
                continue
            xi_a = xi(s, slowdown, job, level, host, w.level[host], gpu_type)
            xi_b = xi(s, slowdown, host, w.level[host], job, level, gpu_type)
            if xi_a == math.inf or xi_b == math.inf:
                continue
            mean = 0.0
            if flags[TEST] == 1:
                if w.start[job] > 0 or w.start[host] > 0:
                    w.mates[0] = host
                    shared = cost(s, w, slowdown, left, job, level, l_a, 1, gpu_type)
                    if shared >= last_end(w, left, 1) + w.start[job] + left[job]:
                        continue
                elif not pays(l_a, left[host], xi_a, xi_b):
                    continue
                mean = shared_mean(l_a, left[host], xi_a, xi_b)
                if flags[QUEUE] == 1:
                    w.mates[0] = host
                    mean = cost(s, w, slowdown, left, job, level, l_a, 1, gpu_type)
            at = count
            while at > 0 and w.scores[at - 1] > mean:
                w.hosts[at], w.scores[at] = w.hosts[at - 1], w.scores[at - 1]
                at -= 1
            w.hosts[at], w.scores[at] = host, mean
            count += 1
    return count


@kernel
def gather_shared(
    s: Scene, w: Scratch, job: int, gpus: int, empty: int, hosts: int, lo: int, hi: int, need: float
) -> tuple[int, int]:
    """All empty GPUs, then those of the hosts in order, until there are enough: (GPUs found, hosts used)."""
    found, mates = 0, 0
    for k in range(empty):
        w.chosen[found] = w.empty[k]
        found += 1
    for c in range(hosts):
        used = False
        for k in range(lo, hi):
            n = w.nodes[k]
            if s.node[n, NODE_CAP] == 0:
                continue
            if found == gpus:
                break
            for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
                if found == gpus or w.users[g, 0] != w.hosts[c] or w.users[g, 1] >= 0 or w.gib[g] < need:
                    continue
                here = 1
                for q in range(found):
                    here += 1 if s.gpu_first[n] <= w.chosen[q] < s.gpu_first[n + 1] else 0
                if feeds(s, w, job, n, here):
                    w.chosen[found] = g
                    found += 1
                    used = True
        if used:
            w.mates[mates] = w.hosts[c]
            mates += 1
        if found == gpus:
            break
    return found, mates


@kernel
def try_walk(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, memory: Matrix, pace: Matrix, job: int,
    lo: int, hi: int, p: int, flags: Ints,
) -> int:  # fmt: skip
    """Find GPUs for a job on some nodes of a pool; they go to `w.best`. The level + 1, or 0 and why in `w.why`."""
    gpus, kind, gpu_type = s.gpus[job], s.kind[job], s.pool[p, POOL_TYPE]
    best_level, best_price = -1, math.inf
    levels = memory.shape[1] if flags[SCALE] == 1 else 1
    for level in range(levels):
        if pace[kind, level] <= 0 or (level > 0 and memory[kind, level] >= memory[kind, level - 1]):
            break
        need = memory[kind, level]
        empty, shared, full = count_usable(s, w, job, lo, hi, need)
        if flags[SOFT] == 1:
            full += count_tight(s, w, job, level, lo, hi, gpu_type)
        if empty >= gpus and level == 0:
            for k in range(gpus):
                w.best[k] = w.empty[k]
            return 1
        w.why[job] = NO_GPUS if full == 0 else NO_MEMORY
        if gpus <= empty + shared and empty < gpus:
            l_a = left[job] / pace[kind, level]
            hosts = find_hosts(s, w, slowdown, left, job, level, l_a, lo, hi, need, gpu_type, flags)
            w.why[job] = WAITING_PAYS
            found, mates = gather_shared(s, w, job, gpus, empty, hosts, lo, hi, need)
            price, bound = 0.0, math.inf
            if flags[PAPER] == 1 and found == gpus:
                price = mean_of_pairs(s, w, slowdown, left, job, level, l_a, mates, gpu_type)
            elif flags[TEST] == 1 and found == gpus:
                price = cost(s, w, slowdown, left, job, level, l_a, mates, gpu_type)
                bound = last_end(w, left, mates)
                latest = min(bound, wait_for(s, w, p, gpus)) if flags[QUEUE] == 1 else bound
                bound = w.start[job] + left[job] + latest
            if found == gpus and price < min(bound, best_price):
                best_level, best_price = level, price
                for k in range(gpus):
                    w.best[k] = w.chosen[k]
        if full == 0 and flags[PAPER] == 0:
            break
        if flags[TEST] == 0 and best_level >= 0:
            break
    return best_level + 1


@kernel
def take(s: Scene, w: Scratch, slowdown: Cube, need: float, job: int, level: int, gpu_type: int) -> None:
    """Put a job on the GPUs of `w.best`."""
    gpus, node = s.gpus[job], -1
    w.level[job] = level
    for k in range(gpus):
        g = w.best[k]
        if w.users[g, 0] >= 0:
            host = w.users[g, 0]
            w.slow[job] = max(w.slow[job], xi(s, slowdown, job, level, host, w.level[host], gpu_type))
            w.slow[host] = max(w.slow[host], xi(s, slowdown, host, w.level[host], job, level, gpu_type))
        place = 0
        while place < SLOTS - 1 and w.users[g, place] >= 0:
            place += 1
        w.users[g, place] = job
        w.gib[g] -= need
        n = 0
        while s.gpu_first[n + 1] <= g:
            n += 1
        if s.hosts_bind == 1:
            w.room[n, 0] -= s.cpus[job] / gpus
            w.room[n, 1] -= s.mem_gib[job] / gpus
        if n != node:
            w.load[n] += 1
            node = n
        w.lined[s.node[n, NODE_POOL]] = 0
    w.quota[s.tenant[job]] -= gpus


@entry
def search(
    s: Scene, w: Scratch, order: Ints, left: Floats, slowdown: Cube, memory: Matrix, pace: Matrix,
    flags: Ints,
) -> int:  # fmt: skip
    """Try to start waiting jobs in order; how many start. Their GPUs are in `w.out_gpus`."""
    started = 0
    for k in range(len(order)):
        job = order[k]
        gpus = s.gpus[job]
        if w.quota[s.tenant[job]] < gpus:
            w.why[job] = OVER_QUOTA
            continue
        pools = s.pools[job]
        for p in range(s.pool.shape[0]):
            if not (pools >> p) & 1:
                continue
            lo, hi, gpu_type = s.pool[p, POOL_LO], s.pool[p, POOL_HI], s.pool[p, POOL_TYPE]
            if w.lined[p] == 0:
                order_nodes(s, w, p)
            level = 0
            if flags[CONSOLIDATE] == 1:
                level = try_single_nodes(s, w, slowdown, left, memory, pace, job, lo, hi, p, flags)
            if level == 0:
                level = try_walk(s, w, slowdown, left, memory, pace, job, lo, hi, p, flags)
            if level == 0:
                w.ahead[p] += gpus
            if level > 0:
                take(s, w, slowdown, memory[s.kind[job], level - 1], job, level - 1, gpu_type)
                w.out[started, 0], w.out[started, 1], w.out[started, 2] = job, level - 1, gpus
                for q in range(gpus):
                    w.out_gpus[started, q] = w.best[q]
                w.why[job] = STARTED
                started += 1
                break
        if started == w.out.shape[0]:
            break
    return started


@kernel
def try_single_nodes(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, memory: Matrix, pace: Matrix, job: int,
    lo: int, hi: int, p: int, flags: Ints,
) -> int:  # fmt: skip
    """A job that fits one node: nodes with just enough empty GPUs first, then those with most, then the idlest."""
    gpus = s.gpus[job]
    best, best_rank = 0, math.inf
    for test in range(2):  # without sharing first
        for k in range(lo, hi):
            n = w.nodes[k]
            size = s.node[n, NODE_SIZE]
            if s.node[n, NODE_CAP] == 0 or size < gpus:
                continue
            free = 0
            for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
                free += 1 if w.users[g, 0] < 0 else 0
            if (free >= gpus) != (test == 0):
                continue
            rank = (free - gpus if free >= gpus else size) * 1e6 - free * 1e3 + w.load[n]
            if rank >= best_rank:
                continue
            level = try_walk(s, w, slowdown, left, memory, pace, job, k, k + 1, p, flags)
            if level > 0:
                best, best_rank = level, rank
                for q in range(gpus):
                    w.kept[q] = w.best[q]
        if best > 0:
            break
    if best > 0:
        for q in range(gpus):
            w.best[q] = w.kept[q]
    return best
