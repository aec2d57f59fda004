"""Carry out a plan of who runs in which pool: keep places where possible, place the others, share where asked.

Whoever is chosen for the pool in which it runs keeps its GPUs (a lease that is renewed costs nothing); the others
follow, largest gangs first, consolidated if they can and otherwise wherever there is room. Jobs that are not chosen
stop. Guests join the GPUs of their host.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.check import mark_named
from cotenant.engine.fill import start_if_it_fits
from cotenant.engine.home import planned_on
from cotenant.engine.ledger import bar
from cotenant.engine.slices import free_bound
from cotenant.engine.walk import claim, commit, keep_place, leave, open_all, plan_start, plan_stop, within_quota
from cotenant.placement.fit import UNCLAIMED, find_place_in

_KEPT, _MISSED = 2, 3  # marks of chosen jobs, which are 1 before that


@kernel
def _keeps(s: State, job: int, pool: int, mark: Ints) -> bool:
    """Let a running job keep its GPUs, if they are in the pool that it is chosen for and nobody has claimed them."""
    mine = s.node[s.slices[s.i[job, SLICE], SLICE_NODE], NODE_POOL] == pool
    if not mine or not keep_place(s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x, job):
        return False
    mark[job] = _KEPT
    return True


@kernel
def _may_join(s: State, job: int, host: int, pool: int, kept: bool) -> bool:
    """Whether a guest may use its host's GPUs: in a pool that is open to it, as many as it asks for, on as many nodes.

    Who has another size than it asked for keeps that only where it is.
    """
    guest, nodes = s.i[job, CLASS], s.cls[s.i[job, CLASS], C_NODES]
    gpus = s.i[host, GPUS] if kept else s.cls[s.i[host, CLASS], C_GPUS]
    if s.cls[guest, C_GPUS] != gpus and not (kept and s.i[job, STATE] == RUNNING and s.i[job, HOST] == host):
        return False
    return bool((s.cls[guest, C_POOLS] >> pool) & 1 and (nodes == 0 or nodes == s.cls[s.i[host, CLASS], C_NODES]))


@kernel
def _home_in(s: State, rule: Rule, job: int, pool: int, mark: Ints, now: float) -> int:
    """The home of a suspended job, if it is in its pool and nobody keeps it; notes since when it is barred from it."""
    count = -1 if planned_on(s, s.i[job, HOME]) else 0
    at = s.i[job, HOME]
    while at >= 0 and count >= 0:
        n = s.slices[at, SLICE_NODE]
        mask, g = s.slices[at, SLICE_MASK], s.gpu_first[n]
        if s.node[n, NODE_POOL] != pool or s.open[n, UNCLAIMED] < s.slices[at, SLICE_GPUS]:
            count = -1
        while mask and count >= 0:
            owner = s.gpu[g, 0] if mask & 1 else -1
            if owner >= 0 and (mark[owner] == _KEPT or s.i[owner, STATE] == PINNED):
                count = -1
            mask >>= 1
            g += 1
        if count >= 0:
            s.pick[count, 0], s.pick[count, 1] = n, s.slices[at, SLICE_GPUS]
            count += 1
        at = s.slices[at, SLICE_NEXT]
    bar(s, rule, job, count < 0, now)
    return max(count, 0)


@kernel
def _stands_apart(s: State, rule: Rule, job: int, host: int, kept: bool, now: float) -> bool:
    """Whether a guest cannot join its host without beginning anew: it stands still, or would have to, elsewhere."""
    if s.i[job, HOME] < 0:
        return bool(s.i[job, STATE] == RUNNING and s.i[job, YIELDS] == 1 and free_bound(s) >= 0)
    at, there = s.i[job, HOME], s.i[host, SLICE] if kept else s.i[host, HOME]
    apart = False
    while at >= 0 and not apart:
        other = there
        while other >= 0 and (
            s.slices[other, SLICE_NODE] != s.slices[at, SLICE_NODE]
            or s.slices[other, SLICE_MASK] != s.slices[at, SLICE_MASK]
        ):
            other = s.slices[other, SLICE_NEXT]
        apart = other < 0
        at = s.slices[at, SLICE_NEXT]
    bar(s, rule, job, apart, now)
    return bool(apart)


@kernel
def _first_gpu(s: State, job: int) -> int:
    """The first GPU of a job that has some, as a row of `State.gpu`."""
    at = s.i[job, SLICE]
    g, mask = s.gpu_first[s.slices[at, SLICE_NODE]], s.slices[at, SLICE_MASK]
    while not mask & 1:
        mask >>= 1
        g += 1
    return int(g)


@kernel
def _kept_beside(s: State, job: int, mark: Ints) -> int:
    """How many others keep the GPUs of a running job: its host, guests whom a host leaves behind, whoever is not
    displaced."""
    g, count = _first_gpu(s, job), 0
    for place in range(s.gpu.shape[1]):
        other = s.gpu[g, place]
        count += 1 if other >= 0 and other != job and mark[other] == _KEPT else 0
    return count


@kernel
def _has_room(s: State, host: int, mark: Ints) -> bool:
    """Whether one more may join a host on the GPUs that it keeps, where others keep them who are not of its group."""
    count = _kept_beside(s, host, mark)
    if count == 0:
        return True
    g = _first_gpu(s, host)
    for place in range(s.gpu.shape[1]):
        other = s.gpu[g, place]
        if other >= 0 and mark[other] == 1 and s.i[other, HOST] >= 0:  # it may stay with its host
            count += 1 if mark[s.i[other, HOST]] == _KEPT else 0
    for k in range(s.x[N_PLANNED]):
        other = s.starts[k, START_HOST]
        count += 1 if other >= 0 and mark[other] == _KEPT and _first_gpu(s, other) == g else 0
    return bool(count + 1 < s.gpu.shape[1])


@kernel
def _let_go_on(s: State, mark: Ints) -> None:
    """Whoever was to stop goes on where he is if nobody comes or stays there: idle GPUs are to be dealt to who wants
    them, and where stopping takes time nobody is stopped to have his own GPUs back."""
    kept = 0
    for k in range(s.x[N_STOPS]):
        job = s.stops[k]
        stays = s.i[job, HOST] < 0 and not planned_on(s, s.i[job, SLICE]) and _kept_beside(s, job, mark) == 0
        if not (stays and keep_place(s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x, job)):
            s.stops[kept] = job
            kept += 1
    s.x[N_STOPS] = kept


@kernel
def _keep_calm(s: State, mark: Ints) -> None:
    """Inside some tenants nobody is displaced: whoever of them runs keeps its GPUs, chosen or not; hosts first."""
    for turn in range(2):
        for k in range(s.x[N_RUN]):
            job = s.run[k]
            if job < 0 or s.quota[s.i[job, TENANT], Q_STAYS] == 0 or s.i[job, PROMISED] == 1:
                continue
            host = s.i[job, HOST]
            if (host >= 0) != (turn == 1):
                continue
            beside = host >= 0 and mark[host] == _KEPT
            if beside or keep_place(s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x, job):
                mark[job] = _KEPT


@kernel
def _stay_or_leave(s: State, rows: Ints, pools: Ints, hosts: Ints, mark: Ints) -> None:
    """Whoever is not chosen stops; whoever has GPUs of its own in the pool that it is chosen for keeps them."""
    if s.x[TENANTS] == 1:
        _keep_calm(s, mark)
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0 and mark[job] == 0:
            plan_stop(s, job)
            leave(s, job)
    for k in range(len(rows)):
        job = rows[k]
        own = hosts[k] < 0 and s.i[job, STATE] == RUNNING and s.i[job, HOST] < 0 and mark[job] != _KEPT
        if own and not _keeps(s, job, pools[k], mark):
            leave(s, job)
    for k in range(len(rows) if s.x[LAGS] == 1 else 0):  # whoever is left alone by a host goes on where it is
        job = rows[k]
        guest = hosts[k] < 0 and s.i[job, STATE] == RUNNING and s.i[job, HOST] >= 0 and mark[job] != _KEPT
        if guest and _kept_beside(s, job, mark) == 0:
            _keeps(s, job, pools[k], mark)


@kernel
def place_in(s: State, c: int, job: int, pool: int) -> int:
    """A place in a pool: by the job's placement if that can be, else anywhere."""
    count = find_place_in(s, c, job, UNCLAIMED, pool, s.cls[c, C_MODE])
    return count if count > 0 else find_place_in(s, c, job, UNCLAIMED, pool, ANYWHERE)


@kernel
def _sits_down(s: State, rule: Rule, job: int, pool: int, mark: Ints, now: float) -> bool:
    """Plan the start of a chosen job that has no GPUs yet, if there is a place for it in its pool."""
    c = s.i[job, CLASS]
    if not within_quota(s, job):
        return False
    if s.i[job, STATE] == RUNNING and s.i[job, YIELDS] == 1 and free_bound(s) >= 0:
        return False  # elsewhere it would begin anew: it stands still and waits for its own GPUs
    count = _home_in(s, rule, job, pool, mark, now) if s.i[job, HOME] >= 0 else place_in(s, c, job, pool)
    if count > 0:
        plan_start(s, job, claim(s, job, count), -1)
    return count > 0


@kernel
def _joins(s: State, rule: Rule, job: int, host: int, pool: int, mark: Ints, now: float) -> bool:
    """Whether a guest has the GPUs of its host, or is planned to."""
    if mark[host] == _MISSED or not within_quota(s, job) or not _may_join(s, job, host, pool, mark[host] == _KEPT):
        return False
    if mark[host] == _KEPT and s.node[s.slices[s.i[host, SLICE], SLICE_NODE], NODE_POOL] != pool:
        return False  # it stays in another one
    if s.i[job, STATE] == RUNNING and s.i[job, HOST] == host and mark[host] == _KEPT:
        return True
    if mark[host] == _KEPT and s.x[TENANTS] == 1 and not _has_room(s, host, mark):
        return False
    if s.x[LAGS] == 1 and _stands_apart(s, rule, job, host, mark[host] == _KEPT, now):
        return False
    plan_start(s, job, -1, host)
    return True


@entry
def carry_out_pools(s: State, rule: Rule, rows: Ints, pools: Ints, hosts: Ints, mark: Ints, now: float) -> int:
    """Run these rows in these pools (guests with their hosts) and nobody else; how many did not find a place.

    -1, and nothing changed, when the plan names a job twice or one that is not active.

    `rows` come hosts before guests, otherwise in the order in which places are looked for. `mark` is scratch with
    one entry per job, all zero.
    """
    if not mark_named(s.i, rows, mark):
        return -1
    open_all(s)
    _stay_or_leave(s, rows, pools, hosts, mark)
    missed = 0
    for k in range(len(rows)):
        job = rows[k]
        if hosts[k] >= 0:
            placed = mark[job] == _KEPT or _joins(s, rule, job, hosts[k], pools[k], mark, now)
        else:
            placed = mark[job] == _KEPT or _sits_down(s, rule, job, pools[k], mark, now)
        if not placed:
            missed += 1
            mark[job] = _MISSED
    for k in range(len(rows)):
        if mark[rows[k]] == _MISSED and s.i[rows[k], STATE] == RUNNING:
            plan_stop(s, rows[k])
    if missed > 0 and s.x[LAGS] == 1:
        _let_go_on(s, mark)
    commit(s, rule, now)
    for k in range(len(rows)):
        mark[rows[k]] = 0
    for k in range(s.x[N_RUN]):
        mark[max(s.run[k], 0)] = 0
    return missed


def name_hosts(s: State, rows: Ints, pools: Ints, hosts: Ints) -> None:
    """In every group that shares, whoever runs in the pool already is the host, whatever the plan calls it."""
    runs = (s.i[rows, STATE] == RUNNING) & (s.i[rows, SLICE] >= 0)
    runs[runs] = s.node[s.slices[s.i[rows[runs], SLICE], SLICE_NODE], NODE_POOL] == pools[runs]
    place = {row: at for at, row in enumerate(rows.tolist())}
    for guest in (runs & (hosts >= 0)).nonzero()[0].tolist():
        host = place[int(hosts[guest])]
        if hosts[guest] >= 0 and not runs[host]:
            hosts[hosts == rows[host]] = rows[guest]
            hosts[guest], hosts[host] = -1, rows[guest]
            runs[host] = False


@entry
def fill_idle(s: State, rule: Rule, rows: Ints, now: float) -> None:
    """Let waiting jobs have what is idle, in the order given: for when a chosen job found no place after all."""
    for k in range(len(rows)):
        if s.i[rows[k], STATE] == WAITING and s.x[IDLE] > 0:
            start_if_it_fits(s, rule, rows[k], s.i[rows[k], CLASS], now)
