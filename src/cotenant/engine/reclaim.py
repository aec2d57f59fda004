"""Borrowed GPUs go back to whoever is guaranteed them and asks: the cheapest jobs that make a place for it are stopped.

A claim stands in the guarantee of a row of the tree: that of its own tenant, or of the nearest one above with some
unspent. Whoever is not below that row may have to leave, as long as each row above it (up to where both paths meet)
holds more than it is guaranteed. So only what is beyond a guarantee is taken, only for what is within one, and nobody
can take it back. Jobs run for LOAN_S before that; cheapest is what loses least unsaved work and start-up, then the
youngest.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.fill import open_idle
from cotenant.engine.home import find_home
from cotenant.engine.keys import cost_now
from cotenant.engine.leaving import preempt
from cotenant.engine.ledger import start
from cotenant.engine.slices import shift, slices_for
from cotenant.engine.victims import ANYBODY, held_on, shortest_tail
from cotenant.placement.fit import IDLE_NOW, UNCLAIMED, find_place
from cotenant.tenancy.asked import I_GUARANTEED, N_USE


@kernel
def obey_ceilings(s: State, rule: Rule, now: float) -> None:
    """Stop the cheapest jobs of whoever holds more than it ever may: the tree has changed, or they were found so."""
    _count_held(s)
    rows, table = s.rows, s.claims.table
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        while table[n, N_USE] > rows.most[n]:
            job = _cheapest_below(s, n, now)
            if job < 0:
                break
            _count(s, job, -1)
            _stop(s, rule, job, now)


@kernel
def anybody_short(s: State) -> bool:
    """Whether somebody waits within a guarantee."""
    _count_held(s)
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0 and _guarantor(s, s.cls[c, C_LEAF], s.cls[c, C_GPUS]) >= 0:
            return True
    return False


@kernel
def reclaim(s: State, rule: Rule, lines: int, now: float) -> bool:
    """Let guaranteed claims have a place, and stop others where there is none; whether anything has changed.

    Compiled orders start whoever is first of its tenant at once, so that nobody who borrows sits down there before;
    other policies decide themselves whom they start, within the limits.
    """
    _count_held(s)
    starts = rule.flags[EXTERNAL] == 0 and rule.flags[EASY] == 0
    if not starts and not _anybody_borrows(s):
        return False
    stamp, started = s.x[STAMP], s.x[N_STARTED_GPUS]
    open_idle(s)
    for k in range(lines):
        c = s.failed[k]
        for turn in range(s.claims.items[k, I_GUARANTEED]):
            job = s.heap[s.cls[c, C_OFFSET]]
            count = _make_room(s, rule, c, job, now)
            if count == 0 or (turn > 0 and rule.flags[STRICT] == 1):
                break
            if starts and s.cls[c, C_COMES] == 0:
                start(s, rule, job, slices_for(s, job, count), now)
    return bool(stamp != s.x[STAMP] or started != s.x[N_STARTED_GPUS])


@kernel
def _make_room(s: State, rule: Rule, c: int, job: int, now: float) -> int:
    """Set an idle place aside for one gang of a class, or clear one; pairs as in `find_place`, 0 if there is none."""
    leaf = s.cls[c, C_LEAF]
    at = _guarantor(s, leaf, s.cls[c, C_GPUS])
    if at < 0:
        return 0
    count, like = 0, c
    if s.i[job, HOME] >= 0:  # it goes on where it stands; else it will be ended, and start where there is room
        count, like = find_home(s, job, IDLE_NOW, s.run, 0, 0), s.cls[c, C_ORIGIN]
        s.cls[c, C_COMES] = 1 if count == 0 else 0
    if count == 0:
        count = find_place(s, like, job, IDLE_NOW)
    if count == 0 and s.rows.reclaims[leaf] == 1:
        count = _clear_place(s, rule, like, job, at, now)
        if count == 0 and _could_fit(s, like, job, at, now):
            s.cls[c, C_COMES] = s.x[RECLAIMING] = 1
    for piece in range(count):
        n, taken = s.pick[piece, 0], s.pick[piece, 1]
        s.open[n, IDLE_NOW] -= taken
        s.open_host[n, 1] -= s.f[job, CPUS] * taken / s.i[job, GPUS]
        s.open_host[n, 3] -= s.f[job, MEM] * taken / s.i[job, GPUS]
    n = leaf if count > 0 else -1
    while n >= 0:
        s.claims.table[n, N_USE] += s.cls[c, C_GPUS]
        n = s.rows.parent[n]
    return count


@kernel
def _clear_place(s: State, rule: Rule, c: int, job: int, at: int, now: float) -> int:
    """Stop the cheapest borrowed jobs that make a place for a gang; pairs as in `find_place`, 0 if none can be made."""
    count = _list_borrowed(s, at, now, False)
    order = s.order[0]
    while count > 0:
        _open_borrowed(s, count)
        pieces = shortest_tail(s, c, job, order, 0, count, ANYBODY)
        if pieces == 0:
            return 0
        wrong = _choose(s, job, at, pieces, count)
        for k in range(count):
            if s.i[order[k], EVICTED] == 1:
                s.i[order[k], EVICTED] = 0
                if wrong < 0:
                    shift(s, order[k], s.i[order[k], SLICE], IDLE_NOW, 1)
                    _stop(s, rule, order[k], now)
                else:
                    _count(s, order[k], 1)
        if wrong < 0:
            return pieces
        for k in range(wrong, count - 1):  # its tenant cannot give so much: look without it
            order[k] = order[k + 1]
        count -= 1
    return 0


@kernel
def _choose(s: State, job: int, at: int, pieces: int, count: int) -> int:
    """Mark who has to leave the place just found, cheapest first; -1, or who of the list stands in the way of it."""
    order = s.order[0]
    blocking = -1
    for piece in range(pieces):
        n, gpus = s.pick[piece, 0], s.pick[piece, 1] - s.open[s.pick[piece, 0], IDLE_NOW]
        cpus = s.f[job, CPUS] * s.pick[piece, 1] / s.i[job, GPUS] - s.open_host[n, 1] - 1e-9
        mem = s.f[job, MEM] * s.pick[piece, 1] / s.i[job, GPUS] - s.open_host[n, 3] - 1e-9
        for turn in range(2):  # first count who leaves anyway
            for k in range(count - 1, -1, -1):
                other = order[k]
                held = held_on(s, other, n)
                short = gpus > 0 or (s.x[USE_HOST] == 1 and (cpus > 0 or mem > 0))
                if held == 0 or (turn == 0 and s.i[other, EVICTED] == 0) or (turn == 1 and not short):
                    continue
                if turn == 1 and s.i[other, EVICTED] == 1:
                    continue
                if turn == 1 and not _may_take(s, other, at):
                    blocking = k
                    continue
                if turn == 1:
                    s.i[other, EVICTED] = 1
                    _count(s, other, -1)
                gpus -= held
                cpus -= held * s.f[other, CPUS] / s.i[other, GPUS]
                mem -= held * s.f[other, MEM] / s.i[other, GPUS]
        if gpus > 0 or (s.x[USE_HOST] == 1 and (cpus > 0 or mem > 0)):
            return blocking if blocking >= 0 else count - 1
    return -1


@kernel
def _list_borrowed(s: State, at: int, now: float, young: bool) -> int:
    """Jobs that may have to leave for a claim in the guarantee of a row, the cheapest last; how many.

    Those in their minimum run only with `young`; NEXT_CLAIM is when the first of these is over. Of jobs that share GPUs
    only hosts are listed.
    """
    order, cost, count = s.order[0], s.scratch, 0
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job < 0 or s.i[job, HOST] >= 0 or not _may_take(s, job, at) or not _company_may_leave(s, job, at):
            continue
        free_s = s.f[job, SINCE] + s.t[LOAN_S] if s.i[job, PROMISED] == 0 else now
        if free_s > now and not young:
            continue
        if free_s > now:
            s.t[NEXT_CLAIM] = min(s.t[NEXT_CLAIM], free_s)
        price = _price(s, job, now)
        place = count
        while place > 0 and _dearer(s, price, job, cost[place - 1], order[place - 1]):
            order[place], cost[place] = order[place - 1], cost[place - 1]
            place -= 1
        order[place], cost[place] = job, price
        count += 1
    return count


@kernel
def _dearer(s: State, price: float, job: int, other_price: float, other: int) -> bool:
    """Whether a job comes before another in the list: it is dearer to stop, or older."""
    if price != other_price:
        return price > other_price
    if s.f[job, SINCE] != s.f[other, SINCE]:
        return bool(s.f[job, SINCE] < s.f[other, SINCE])
    return job < other


@kernel
def _price(s: State, job: int, now: float) -> float:
    """What stopping a job loses, in seconds."""
    return 0.0 if s.i[job, PROMISED] == 1 else cost_now(s.f, s.i, job, now, False)


@kernel
def _company_may_leave(s: State, job: int, at: int) -> bool:
    """Whether all who share GPUs with a job may have to leave with it."""
    piece = s.i[job, SLICE] if s.x[STACKS] == 1 else -1
    while piece >= 0:
        mask, g = s.slices[piece, SLICE_MASK], s.gpu_first[s.slices[piece, SLICE_NODE]]
        while mask:
            for place in range(s.gpu.shape[1]):
                other = s.gpu[g, place] if mask & 1 else -1
                if other >= 0 and other != job and not _may_take(s, other, at):
                    return False
            mask >>= 1
            g += 1
        piece = s.slices[piece, SLICE_NEXT]
    return True


@kernel
def _open_borrowed(s: State, count: int) -> None:
    """Show what is free when everybody on the list leaves."""
    for n in range(s.node.shape[0]):
        s.open[n, UNCLAIMED] = s.open[n, IDLE_NOW]
        s.open_host[n, 0], s.open_host[n, 2] = s.open_host[n, 1], s.open_host[n, 3]
    for k in range(count):
        shift(s, s.order[0, k], s.i[s.order[0, k], SLICE], UNCLAIMED, 1)


@kernel
def _could_fit(s: State, c: int, job: int, at: int, now: float) -> bool:
    """Whether a gang would have a place if all left who may have to, those in their minimum run too."""
    _open_borrowed(s, _list_borrowed(s, at, now, True))
    return find_place(s, c, job, UNCLAIMED) > 0


@kernel
def _stop(s: State, rule: Rule, job: int, now: float) -> None:
    """Stop a job, and whoever shares its GPUs, by the usual ladder."""
    for k in range(s.x[N_RUN] if s.x[STACKS] == 1 else 0):
        guest = s.run[k]
        if guest >= 0 and s.i[guest, HOST] == job:
            _count(s, guest, -1)
            s.quota[s.i[guest, TENANT], Q_RECLAIMS] += 1
            preempt(s, rule, guest, now, 0)
    s.quota[s.i[job, TENANT], Q_RECLAIMS] += 1
    preempt(s, rule, job, now, 0)


# -- sums along the tree -------------------------------------------------------------------------------------------


@kernel
def _count_held(s: State) -> None:
    """What every row of the tree holds, with all rows below it."""
    rows, table = s.rows, s.claims.table
    for n in range(rows.parent.shape[0]):
        table[n, N_USE] = 0
        for p in range(s.asked.running.shape[1]):
            table[n, N_USE] += s.asked.running[n, p]
    for n in range(rows.parent.shape[0] - 1, 0, -1):
        table[rows.parent[n], N_USE] += table[n, N_USE]


@kernel
def _count(s: State, job: int, sign: int) -> None:
    """Count what a job holds in (+1) or out (-1)."""
    n = s.cls[s.i[job, CLASS], C_LEAF]
    while n >= 0:
        s.claims.table[n, N_USE] += sign * s.i[job, GPUS]
        n = s.rows.parent[n]


@kernel
def _anybody_borrows(s: State) -> bool:
    found = False
    for n in range(1, s.rows.parent.shape[0]):
        found = found or s.claims.table[n, N_USE] > s.rows.guaranteed[n]
    return bool(found)


@kernel
def _guarantor(s: State, leaf: int, gpus: int) -> int:
    """The nearest row at or above a leaf whose guarantee has room for a gang; -1 if there is none."""
    n = leaf
    while n > 0:
        if s.claims.table[n, N_USE] + gpus <= s.rows.guaranteed[n]:
            return int(n)
        n = s.rows.parent[n]
    return -1


@kernel
def _is_below(s: State, n: int, top: int) -> bool:
    while n >= 0:
        if n == top:
            return True
        n = s.rows.parent[n]
    return False


@kernel
def _may_take(s: State, job: int, at: int) -> bool:
    """Whether what a job holds is beyond the guarantees of all rows above it, up to those that stand above `at` too."""
    n = s.cls[s.i[job, CLASS], C_LEAF]
    if _is_below(s, n, at):
        return False
    while not _is_below(s, at, n):
        if s.claims.table[n, N_USE] <= s.rows.guaranteed[n]:
            return False
        n = s.rows.parent[n]
    return True


@kernel
def _cheapest_below(s: State, top: int, now: float) -> int:
    """The cheapest job to stop below a row: of those beyond the guarantees on their way to it, if there are any."""
    best, best_price, best_beyond = -1, math.inf, False
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job < 0:
            continue
        n = s.cls[s.i[job, CLASS], C_LEAF]
        if not _is_below(s, n, top):
            continue
        beyond = True
        while n != top:
            beyond = beyond and s.claims.table[n, N_USE] > s.rows.guaranteed[n]
            n = s.rows.parent[n]
        price = _price(s, job, now)
        if (
            best < 0
            or (beyond and not best_beyond)
            or (beyond == best_beyond and _dearer(s, best_price, best, price, job))
        ):
            best, best_price, best_beyond = job, price, beyond
    return int(best)
