"""The stage *admit*: how many GPUs each tenant may hold now, worked out before every decision from what runs and waits.

`tenancy.filling` says it from counts. Here its questions are written down from the tables, and its answers become
limits (Q_LIMIT), which every order and every plan respects; who has to give GPUs back is found in `reclaim`. When the
policy has decided, idle GPUs that a gang could not use, though its limit let it, go to others (`share_rest`).
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.easy import easy
from cotenant.engine.fill import open_idle, room_in_quota, start_if_it_fits
from cotenant.engine.home import find_home
from cotenant.engine.ledger import count_use
from cotenant.engine.lines import advance_line, line_up
from cotenant.engine.reclaim import anybody_short, obey_ceilings, reclaim
from cotenant.placement.fit import IDLE_NOW, find_place
from cotenant.tenancy.asked import W_AGED, W_COUNT, W_GPUS, W_POOLS, W_ROW, Asked
from cotenant.tenancy.filling import fill_limits

_MOST_ROUNDS = 32


@entry
def admit(s: State, rule: Rule, now: float) -> None:
    """Limits for the decision to come; whoever has borrowed what others are guaranteed, and ask for, is stopped."""
    s.x[NEW_TREE] = s.x[RECLAIMING] = 0
    s.t[NEXT_CLAIM] = math.inf
    for c in range(s.cls.shape[0]):
        s.cls[c, C_ASIDE] = s.cls[c, C_COMES] = 0
    obey_ceilings(s, rule, now)
    short = anybody_short(s)
    if s.x[IDLE] == 0 and s.x[STACKS] == 0 and not short:  # nothing to give, and nothing to take back
        s.x[RESERVED] = -1
        for q in range(s.claims.limit.shape[0]):
            s.claims.limit[q] = s.quota[q, Q_USED]
        _write_limits(s, short)
        return
    lines = _ask(s, rule, now)
    _fill(s, lines)
    if reclaim(s, rule, lines, now):
        _fill(s, _ask(s, rule, now))
    _write_limits(s, short)


@entry
def share_rest(s: State, rule: Rule, now: float) -> None:
    """Let others have idle GPUs for which whoever might have had them had no use, by the same rule and without stops.

    Whoever finds no place, though its limit lets it, is set aside, unless GPUs come back for it or are reserved for it.
    Whom the policy leaves waiting beside a place keeps its claim.
    """
    started = -1
    for _ in range(_MOST_ROUNDS):
        more = rule.flags[STRICT] == 1 and started != s.x[N_STARTED_GPUS]  # others are first now
        started = s.x[N_STARTED_GPUS]
        if s.x[IDLE] == 0 or s.x[N_WAITING] == 0 or not (_set_aside(s, now) or more):
            return
        short = anybody_short(s)
        _fill(s, _ask(s, rule, now))
        _write_limits(s, short)
        if rule.flags[EASY] == 1:
            easy(s, rule, now)
        else:
            _start_others(s, rule, now)


@kernel
def _ask(s: State, rule: Rule, now: float) -> int:
    """Write down what is idle and what waits, in order; how many lines. What runs is kept up to date by the ledger."""
    for p in range(s.pool.shape[0]):
        s.asked.idle[p] = 0
    for n in range(s.node.shape[0]):
        s.asked.idle[s.node[n, NODE_POOL]] += s.node[n, NODE_FREE]
    _ask_past(s, now)
    _ask_hosts(s)
    line_up(s)
    strict, count = rule.flags[STRICT] == 1, 0
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_CLOSED] = 0
    for line in range(s.x[N_LINES]):
        c = s.lines[line]
        q, job = s.cls[c, C_TENANT], s.heap[s.cls[c, C_OFFSET]]
        if s.quota[q, Q_CLOSED] == 1:
            continue
        s.quota[q, Q_CLOSED] = 1 if strict else 0  # the first one holds back the rest of its tenant
        if s.cls[c, C_ASIDE] == 1:
            continue
        s.failed[count] = c
        s.asked.waiting[count, W_ROW] = s.cls[c, C_LEAF]
        s.asked.waiting[count, W_GPUS] = s.cls[c, C_GPUS]
        s.asked.waiting[count, W_COUNT] = s.cls[c, C_LEN]
        s.asked.waiting[count, W_POOLS] = s.cls[c, C_POOLS]
        s.asked.waiting[count, W_AGED] = 1 if _has_aged(s, job, now) else 0
        s.asked.waiting_host[count, 0] = s.f[job, CPUS]
        s.asked.waiting_host[count, 1] = s.f[job, MEM]
        count += 1
    return count


@kernel
def _ask_past(s: State, now: float) -> None:
    """Past use per tenant, brought up to now; with its first row in the tree."""
    for n in range(s.rows.parent.shape[0]):
        s.asked.past[n] = 0.0
    if s.t[HALF_LIFE_S] == math.inf:
        return
    for n in range(s.rows.parent.shape[0] - 1, -1, -1):
        q = s.rows.tenant[n]
        if q >= 0:
            count_use(s, q, now)
            s.asked.past[n] = s.use[q, U_PAST]
            if n + 1 < s.rows.parent.shape[0] and s.rows.tenant[n + 1] == q:  # it has several rows, side by side
                s.asked.past[n + 1] = 0.0


@kernel
def _ask_hosts(s: State) -> None:
    """Cores and memory that tenants hold, where somebody has a limit of them."""
    limited = False
    for n in range(s.rows.parent.shape[0]):
        s.asked.running_host[n, 0] = s.asked.running_host[n, 1] = 0.0
        limited = limited or min(s.rows.host[n, 0], s.rows.host[n, 1]) < math.inf
    for k in range(s.x[N_RUN] if limited else 0):
        job = s.run[k]
        if job >= 0:
            leaf = s.cls[s.i[job, CLASS], C_LEAF]
            s.asked.running_host[leaf, 0] += s.f[job, CPUS]
            s.asked.running_host[leaf, 1] += s.f[job, MEM]


@kernel
def _has_aged(s: State, job: int, now: float) -> bool:
    """Whether a job has waited so long that GPUs are reserved for it when its turn comes."""
    return bool(now - s.f[job, SINCE] >= s.t[RESERVE_S])


@kernel
def _fill(s: State, lines: int) -> None:
    """Let the rule fill the cluster with so many lines."""
    asked = s.asked
    waiting, hosts = asked.waiting[:lines], asked.waiting_host[:lines]
    fill_limits(s.rows, Asked(asked.idle, asked.running, asked.running_host, asked.past, waiting, hosts), s.claims)
    s.x[RESERVED] = -1
    for p in range(s.pool.shape[0]):
        if s.claims.reserved[p] >= 0 and s.x[RESERVED] < 0:
            s.x[RESERVED] = s.heap[s.cls[s.failed[s.claims.reserved[p]], C_OFFSET]]


@kernel
def _write_limits(s: State, short: bool) -> None:
    """What the rule says, but nobody has to give back more than was taken back.

    Where several jobs may share a GPU, each GPU of a tenant counts for so many as it takes, up to its ceilings; not as
    long as somebody is `short` of what it is guaranteed, for whoever borrows might sit down on what was cleared for it.
    """
    for q in range(s.claims.limit.shape[0]):
        limit = s.claims.limit[q]
        if s.x[STACKS] == 1 and not short:
            limit = max(limit, min(limit * s.gpu.shape[1], s.quota[q, Q_MOST]))
        limit = max(limit, s.quota[q, Q_USED])
        s.quota[q, Q_CLOSED] = 1 if limit > s.quota[q, Q_LIMIT] else 0
        s.quota[q, Q_LIMIT] = limit
    for c in range(s.cls.shape[0]):
        if s.quota[s.cls[c, C_TENANT], Q_CLOSED] == 1:
            s.cls[c, C_BLOCKED] = 0


@kernel
def _set_aside(s: State, now: float) -> bool:
    """Set those aside who might start and find no place; whether there are any."""
    found = False
    open_idle(s)
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] == 0 or s.cls[c, C_ASIDE] == 1 or s.cls[c, C_COMES] == 1 or not room_in_quota(s, c):
            continue
        job = s.heap[s.cls[c, C_OFFSET]]
        if not _has_aged(s, job, now) and not _finds_place(s, c, job):
            s.cls[c, C_ASIDE] = 1
            found = True
    return found


@kernel
def _finds_place(s: State, c: int, job: int) -> bool:
    if s.i[job, HOME] >= 0:
        return bool(find_home(s, job, IDLE_NOW, s.run, 0, 0) > 0)
    return bool(s.cls[c, C_GPUS] <= s.x[IDLE] and find_place(s, c, job, IDLE_NOW) > 0)


@kernel
def _start_others(s: State, rule: Rule, now: float) -> None:
    """Start whoever was not asked yet and fits, in order; a strict order goes no further than its first job."""
    line_up(s)
    line = 0
    while line < s.x[N_LINES] and s.x[IDLE] > 0:
        c = s.lines[line]
        if s.cls[c, C_ASIDE] == 0 and start_if_it_fits(s, rule, s.heap[s.cls[c, C_OFFSET]], c, now):
            advance_line(s, line)
        else:
            line += 1
