"""One decision of a built-in policy on the engine's tables."""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.behind import begin_decision, is_plain, note_loose
from cotenant.engine.claims import admit, share_rest
from cotenant.engine.easy import easy
from cotenant.engine.fill import fill, start_if_it_fits
from cotenant.engine.keys import chain_by_tenant, gpus_not_ahead, own_gpus_not_ahead, refresh_keys
from cotenant.engine.ledger import count_standing
from cotenant.engine.lines import advance_line, line_up
from cotenant.engine.listing import list_kept
from cotenant.engine.openings import goes_by_node, may_be_idle, may_open
from cotenant.engine.tail import enough_behind, walk_from_tail
from cotenant.engine.walk import walk_preemptive

NO_WALK, A_WALK, WITH_FRESH_KEYS = 0, 1, 2
_HOPELESS, _STARTED, _DISPLACES, _LAST = 0, 1, 2, 3


@entry
def decide(s: State, rule: Rule, now: float) -> None:
    """Bring what runs in line with the policy after everything that happened at `now`."""
    if s.x[TENANTS] == 1:
        admit(s, rule, now)
    if s.x[N_WAITING] > 0:
        _decide(s, rule, now)
        if s.x[TENANTS] == 1:
            share_rest(s, rule, now)
    if s.x[N_DEMOTED] > 0:
        list_kept(s)


@kernel
def _decide(s: State, rule: Rule, now: float) -> None:
    if rule.flags[PREEMPTIVE] == 1 and is_plain(s, rule):
        _decide_plain(s, rule, now)
    elif rule.flags[PREEMPTIVE] == 1:
        if s.x[LAGS] == 1:
            count_standing(s, rule, now)
        needed = start_without_displacing(s, rule, now)
        if needed > 0:
            walk_preemptive(s, rule, now, needed == WITH_FRESH_KEYS)
    elif rule.flags[EASY] == 1:
        easy(s, rule, now)
    else:
        fill(s, rule, now, rule.flags[STRICT] == 1)


@kernel
def _decide_plain(s: State, rule: Rule, now: float) -> None:
    """The same as the two below, where a look at the nodes that changed and at the end of the line will do."""
    begin_decision(s, rule, now)
    newest = s.x[NEWEST]
    alone = s.x[DIRTY] == 0 and s.x[ARRIVED] == 1 and s.i[newest, STATE] == WAITING
    if alone and (rule.flags[STABLE] == 1 or s.x[N_WAITING] == 1):
        found = _HOPELESS if s.i[newest, HEAP_AT] > 0 else _look_at(s, rule, s.i[newest, CLASS], newest, now)
        if s.i[newest, HEAP_AT] == 0:
            note_loose(s, rule, now)
        if found == _DISPLACES:
            walk_from_tail(s, rule, 0, now)
        return
    line_up(s)
    line, found, nobody = 0, _HOPELESS, False
    while line < s.x[N_LINES] and found != _DISPLACES:
        c = s.lines[line]
        if nobody and s.cls[c, C_GPUS] > s.x[IDLE]:
            line += 1
            continue
        found = _look_at(s, rule, c, s.heap[s.cls[c, C_OFFSET]], now)
        if found == _STARTED:
            advance_line(s, line)
        else:
            line += 1
            nobody = nobody or found == _LAST
    if s.x[N_LINES] > 0:
        note_loose(s, rule, now)
    if found == _DISPLACES:
        walk_from_tail(s, rule, line - 1, now)


@kernel
def _look_at(s: State, rule: Rule, c: int, job: int, now: float) -> int:
    """Start the first waiting job of a class if it needs nobody's GPUs; else say whether it might displace somebody, or
    that nobody runs behind it, nor behind those that come after it."""
    by_node = goes_by_node(s, c)
    first = not by_node or may_be_idle(s, c)  # what limits would tell of idle GPUs costs more than looking for them
    if first and start_if_it_fits(s, rule, job, c, now):
        return _STARTED
    if by_node and not may_open(s, rule, c, job, now):
        return _HOPELESS
    if by_node and not first and start_if_it_fits(s, rule, job, c, now):
        return _STARTED
    if by_node:
        return _DISPLACES
    if s.f[job, KEY1] > s.t[LAST_KEY]:
        return _LAST
    if rule.flags[STABLE] == 1 and _known_hopeless(s, c, job):
        return _HOPELESS
    if enough_behind(s, rule, c, job, now):
        return _DISPLACES
    return _LAST if s.cls[c, C_BEHIND] == 0 else _HOPELESS


@kernel
def start_without_displacing(s: State, rule: Rule, now: float) -> int:
    """Start waiting jobs that need nobody's GPUs; whether somebody may have to be displaced for another: NO_WALK,
    A_WALK, or WITH_FRESH_KEYS, where nobody was started since the keys of running jobs were written.

    A job whose GPUs are idle starts in a walk too, and displaces nobody. A job that would not fit even if
    everybody behind it stopped is skipped in a walk too. Only where neither holds a walk is needed.
    When one arrival is all that happened, and keys move so that the last decision still stands (running
    jobs only gain on waiting ones), it is the only one to look at.
    """
    newest = s.x[NEWEST]
    alone = s.x[DIRTY] == 0 and s.x[ARRIVED] == 1 and s.i[newest, STATE] == WAITING and s.x[TENANTS] != 1
    alone = alone and (rule.flags[STABLE] == 1 or s.x[N_WAITING] == 1)
    if alone:
        if s.i[newest, HEAP_AT] > 0 and rule.flags[WEIGHS] == 0:  # one of its class that comes before it still waits
            return NO_WALK  # where stops are weighed, it might be worth one by now
        if start_if_it_fits(s, rule, newest, s.i[newest, CLASS], now):
            return NO_WALK
        refresh_keys(s, rule, now)
        return WITH_FRESH_KEYS if _could_displace(s, newest, s.x[N_RUN], now) else NO_WALK
    line_up(s)
    stable = rule.flags[STABLE] == 1
    fresh = False
    count = started = 0
    line = 0
    while line < s.x[N_LINES]:
        c = s.lines[line]
        job = s.heap[s.cls[c, C_OFFSET]]
        if start_if_it_fits(s, rule, job, c, now):
            advance_line(s, line)
            continue
        if not (stable and _known_hopeless(s, c, job)):
            if not fresh:
                refresh_keys(s, rule, now)
                if s.x[TENANTS] == 1:
                    chain_by_tenant(s)
                count, started, fresh = s.x[N_RUN], s.x[N_STARTED_GPUS], True
            if _could_displace(s, job, count, now):
                return WITH_FRESH_KEYS if s.x[N_STARTED_GPUS] == started else A_WALK
        line += 1
    return NO_WALK


@kernel
def _known_hopeless(s: State, c: int, job: int) -> bool:
    """Whether a count made earlier already shows that a job would not fit if everybody behind it stopped.

    Under stable keys nobody falls back, so since then only jobs that started can have come behind it.
    """
    if s.cls[c, C_HEAD] != job or s.cls[c, C_EPOCH] != s.x[EPOCH]:
        return False
    behind = s.cls[c, C_BEHIND] + s.x[N_STARTED_GPUS] - s.cls[c, C_STARTED]
    return bool(behind == 0 or behind + s.x[IDLE] < s.i[job, GPUS])


@kernel
def _could_displace(s: State, job: int, count: int, now: float) -> bool:
    """Whether the running jobs behind a waiting one hold enough GPUs, so that stopping some might help.

    Under a tree of tenants those of its own tenant, if that lets anybody be displaced.
    """
    c, q = s.i[job, CLASS], s.i[job, TENANT]
    if s.x[TENANTS] != 1:
        behind = int(gpus_not_ahead(s.keys, s.hot, count, s.f[job, KEY1], s.f[job, KEY2]))
    elif s.quota[q, Q_STAYS] == 1 or s.quota[q, Q_USED] == 0:
        behind = 0
    else:
        behind = own_gpus_not_ahead(s, job, now)
    s.cls[c, C_HEAD], s.cls[c, C_BEHIND] = job, behind
    s.cls[c, C_STARTED], s.cls[c, C_EPOCH] = s.x[N_STARTED_GPUS], s.x[EPOCH]
    return bool(behind > 0 and behind + s.x[IDLE] >= s.i[job, GPUS])
