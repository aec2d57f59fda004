"""One decision of Philly: queue after queue, who starts where, who holds which GPUs, who is preempted.

The queue that is furthest below its quota comes first; inside it jobs are tried in their order, and whoever does not
fit may be overtaken. A large job that finds no sufficiently local GPUs holds what it finds until its time-out, unless
its tenant is at its quota: GPUs are lent for work, not for waiting.
"""

from __future__ import annotations

import math

from cotenant.core.jit import entry, kernel
from cotenant.core.workload import Ints
from cotenant.policies.philly.attempts import attempt_of, attempt_s, backs_off, locality_of, relaxes_s
from cotenant.policies.philly.displacing import displace, is_full, may_displace, starts
from cotenant.policies.philly.placing import seek
from cotenant.policies.philly.reserving import is_in_the_way, reserve
from cotenant.policies.philly.tables import (
    ANYWHERE,
    HOLD,
    HOLD_GPUS,
    HOLD_NODE,
    HOLD_ROW,
    IS_RESERVED,
    LARGE,
    LEFT,
    N_FAILED,
    N_HARMFUL,
    N_HOLDS,
    N_PICKED,
    N_STARTED,
    OVERS,
    RESERVE,
    RUN_END,
    RUN_FIRST,
    RUN_ROW,
    Lasting,
    Situation,
    Timing,
    Workspace,
)


@kernel
def number_of(s: Situation, m: Lasting, row: int) -> int:
    """Number of a row among the waiting jobs, -1 when it does not wait."""
    at = m.at[row]
    return int(at) if 0 <= at < len(s.row) and s.row[at] == row else -1


@kernel
def keep_holds(s: Situation, o: Timing, m: Lasting, w: Workspace) -> None:
    """Drop what was held by jobs that wait no longer or have timed out; the rest is not free."""
    kept = 0
    for k in range(m.counts[N_HOLDS]):
        row, n = m.holds[k, HOLD_ROW], m.holds[k, HOLD_NODE]
        gpus = min(m.holds[k, HOLD_GPUS], w.free[n])
        if gpus < 1 or number_of(s, m, row) < 0 or backs_off(o, m.began_s[row], s.now_s):
            continue
        m.holds[kept, HOLD_ROW], m.holds[kept, HOLD_NODE], m.holds[kept, HOLD_GPUS] = row, n, gpus
        kept += 1
        w.free[n] -= gpus
    m.counts[N_HOLDS] = kept


@kernel
def let_go(m: Lasting, w: Workspace, row: int) -> int:
    """Make what a job holds free, to look at it with all the rest; how much that is."""
    kept = freed = 0
    for k in range(m.counts[N_HOLDS]):
        n, gpus = m.holds[k, HOLD_NODE], m.holds[k, HOLD_GPUS]
        if m.holds[k, HOLD_ROW] == row:
            w.free[n] += gpus
            freed += gpus
        else:
            m.holds[kept, HOLD_ROW], m.holds[kept, HOLD_NODE] = m.holds[k, HOLD_ROW], n
            m.holds[kept, HOLD_GPUS] = gpus
            kept += 1
    m.counts[N_HOLDS] = kept
    w.marks[LEFT] += freed
    return int(freed)


@kernel
def hold(m: Lasting, w: Workspace, row: int) -> None:
    """Keep what was found from others."""
    for k in range(w.marks[N_PICKED]):
        n, gpus, at = w.pick[k, 0], w.pick[k, 1], m.counts[N_HOLDS]
        m.holds[at, HOLD_ROW], m.holds[at, HOLD_NODE], m.holds[at, HOLD_GPUS] = row, n, gpus
        m.counts[N_HOLDS] += 1
        w.free[n] -= gpus
        w.marks[LEFT] -= gpus


@kernel
def next_queue(s: Situation, w: Workspace) -> int:
    """The tenant furthest below its quota that has jobs to be tried; of equals the one with the first job."""
    best, best_ratio = -1, math.inf
    for t in range(len(s.quota)):
        if w.head[t] >= s.queue[t + 1]:
            continue
        ratio = w.used[t] / s.quota[t] if s.quota[t] > 0 else math.inf
        first = best >= 0 and s.rank[w.head[t]] < s.rank[w.head[best]]
        if best < 0 or ratio < best_ratio or (ratio == best_ratio and first):
            best, best_ratio = t, ratio
    return best


@kernel
def has_failed(s: Situation, w: Workspace, job: int, locality: int) -> bool:
    """Whether a job of this shape was tried already; free GPUs only become fewer."""
    found = False
    for k in range(w.marks[N_FAILED]):
        found = found or (w.failed[k, 0] == s.shape[job] and w.failed[k, 1] == locality)
    return bool(found)


@kernel
def note_failed(s: Situation, w: Workspace, job: int, locality: int) -> None:
    """Remember a shape that does not fit."""
    at = w.marks[N_FAILED]
    if at < w.failed.shape[0] and w.marks[IS_RESERVED] == 0 and s.hosts_bind == 0:
        w.failed[at, 0], w.failed[at, 1] = s.shape[job], locality
        w.marks[N_FAILED] += 1


@kernel
def judge_overtaking(s: Situation, m: Lasting, w: Workspace, job: int, locality: int) -> None:
    """Of those who overtook a large job and still run: who has what it would start with now?"""
    row, found = s.row[job], False
    for n in range(len(w.free)):
        w.trial[n] = w.free[n]
    for v in range(s.runs.shape[0]):
        if m.passed[s.runs[v, RUN_ROW]] == row and w.gone[v] == 0:
            found = True
            for k in range(s.runs[v, RUN_FIRST], s.runs[v, RUN_END]):
                w.trial[s.pieces[k, 0]] += s.pieces[k, 1]
    if not found or seek(s, w, w.trial, job, locality) < s.gpus[job]:
        return
    for n in range(len(w.free)):
        w.mark[n] = 0
    for k in range(w.marks[N_PICKED]):
        w.mark[w.pick[k, 0]] = 1
    for v in range(s.runs.shape[0]):
        if m.passed[s.runs[v, RUN_ROW]] == row:
            for k in range(s.runs[v, RUN_FIRST], s.runs[v, RUN_END]):
                if w.mark[s.pieces[k, 0]] == 1:
                    m.passed[s.runs[v, RUN_ROW]] = -1
                    m.counts[N_HARMFUL] += 1
                    break


@kernel
def waits(s: Situation, w: Workspace, job: int) -> None:
    """Whoever of its queue starts from now on overtakes it."""
    t = s.tenant[job]
    w.behind[t] = 1
    if w.large[t] < 0 and s.gpus[job] > LARGE:
        w.large[t] = s.row[job]


@kernel
def fits(s: Situation, o: Timing, w: Workspace, job: int, locality: int) -> bool:
    """Whether there is a place for a job that is in nobody's way."""
    if is_in_the_way(s, o, w, job):
        return bool(seek(s, w, w.spare, job, locality) == s.gpus[job])
    return bool(seek(s, w, w.free, job, locality) == s.gpus[job])


@kernel
def consider(s: Situation, o: Timing, m: Lasting, w: Workspace, job: int) -> None:
    """One job at its turn: it starts, or has others leave, or holds what there is, or waits."""
    t, gang, row = s.tenant[job], s.gpus[job], s.row[job]
    if gang > 1 and backs_off(o, m.began_s[row], s.now_s):
        waits(s, w, job)
        return
    locality = ANYWHERE if s.roams[job] == 1 else locality_of(o, attempt_of(o, m.began_s[row], s.now_s))
    own = let_go(m, w, row) if gang > 1 and m.counts[N_HOLDS] > 0 else 0
    if gang > w.limit[t] - w.used[t]:
        waits(s, w, job)
        return
    if own > 0 or not has_failed(s, w, job, locality):
        if w.marks[LEFT] >= gang and fits(s, o, w, job, locality):
            starts(s, m, w, job)
            return
        if may_displace(s, o, w, job) and displace(s, m, w, job, locality):
            return
        note_failed(s, w, job, locality)
    if gang > 1 and math.isnan(m.began_s[row]):
        m.began_s[row] = s.now_s
    if gang > LARGE:
        judge_overtaking(s, m, w, job, locality)
    if o.way == HOLD and gang > 1 and w.used[t] < s.quota[t] and w.marks[LEFT] > 0:
        seek(s, w, w.free, job, locality)
        hold(m, w, row)
    if o.way == RESERVE and w.marks[IS_RESERVED] == 0:
        reserve(s, w, job, locality)
    waits(s, w, job)


@kernel
def wake_for(s: Situation, o: Timing, m: Lasting, w: Workspace, job: int) -> float:
    """When a job that waits is to be looked at though nothing has happened by then."""
    t, row = s.tenant[job], s.row[job]
    began = m.began_s[row]
    if math.isnan(began):
        return math.inf
    attempt = attempt_of(o, began, s.now_s)
    if o.way == HOLD and not backs_off(o, began, s.now_s):
        for k in range(m.counts[N_HOLDS]):
            if m.holds[k, HOLD_ROW] == row:
                return attempt_s(o, began, attempt) + o.timeout_s
    within = w.used[t] < s.quota[t]
    takes = within and w.marks[OVERS] > 0 and is_full(s, o, w)
    if not (w.marks[LEFT] >= s.gpus[job] or takes or (within and o.way == HOLD and w.marks[LEFT] > 0)):
        return math.inf
    if backs_off(o, began, s.now_s):
        return attempt_s(o, began, attempt + 1)
    return relaxes_s(o, began, attempt)


@entry
def step(s: Situation, o: Timing, m: Lasting, w: Workspace, started: Ints) -> None:
    """Decide; `started` is 1 for the waiting jobs that do."""
    keep_holds(s, o, m, w)
    for n in range(len(w.free)):
        w.marks[LEFT] += max(w.free[n], 0)
    while True:
        t = next_queue(s, w)
        if t < 0:
            break
        w.head[t] += 1
        consider(s, o, m, w, w.head[t] - 1)
    for k in range(w.marks[N_STARTED]):
        started[w.started[k, 0]] = 1
    for t in range(len(s.quota)):
        w.marks[OVERS] += 1 if w.used[t] > s.quota[t] else 0
    w.until_s[0] = math.inf
    for job in range(len(s.row)):
        if started[job] == 0:
            w.until_s[0] = min(w.until_s[0], wake_for(s, o, m, w, job))
