"""Starting a job, and preemption between tenants: GPUs beyond a quota go back to whoever asks within its own.

Only while `threshold` of the GPUs are in use. Of a tenant above its quota the youngest jobs leave, as long as it stays
at its quota; one that reaches over the quota leaves only where no other can.
"""

from __future__ import annotations

import math

from cotenant.core.jit import kernel
from cotenant.policies.philly.placing import seek
from cotenant.policies.philly.tables import (
    BUSY,
    IS_RESERVED,
    LEFT,
    N_FAILED,
    N_OUT_OF_ORDER,
    N_PAST_LARGE,
    N_PICKED,
    N_PLACES,
    N_STARTED,
    N_STARTS,
    N_VICTIMS,
    RUN_END,
    RUN_FIRST,
    RUN_GPUS,
    RUN_ROW,
    RUN_TENANT,
    Lasting,
    Situation,
    Timing,
    Workspace,
)


@kernel
def put(s: Situation, w: Workspace, job: int, n: int, gpus: int) -> None:
    """Give GPUs of a node to a job."""
    w.free[n] -= gpus
    w.marks[LEFT] -= gpus
    w.room[n, 0] -= gpus * s.cpus[job]
    w.room[n, 1] -= gpus * s.mem_gib[job]
    if w.marks[IS_RESERVED] == 1:
        in_time = s.now_s + s.remaining_s[job] <= w.until_s[1]
        w.spare[n] = min(w.spare[n], w.free[n]) if in_time else w.spare[n] - gpus


@kernel
def starts(s: Situation, m: Lasting, w: Workspace, job: int) -> None:
    """A job starts where it was found a place."""
    t, row, first = s.tenant[job], s.row[job], w.marks[N_PLACES]
    for k in range(w.marks[N_PICKED]):
        at = w.marks[N_PLACES]
        w.places[at, 0], w.places[at, 1] = w.pick[k, 0], w.pick[k, 1]
        w.marks[N_PLACES] += 1
        put(s, w, job, w.pick[k, 0], w.pick[k, 1])
    at = w.marks[N_STARTED]
    w.started[at, 0], w.started[at, 1], w.started[at, 2] = job, first, w.marks[N_PLACES]
    w.marks[N_STARTED] += 1
    w.marks[BUSY] += s.gpus[job]
    w.used[t] += s.gpus[job]
    m.began_s[row] = math.nan
    m.counts[N_STARTS] += 1
    m.counts[N_OUT_OF_ORDER] += w.behind[t]
    m.passed[row] = w.large[t]
    m.counts[N_PAST_LARGE] += 1 if w.large[t] >= 0 else 0
    for v in range(s.runs.shape[0]):  # whoever overtook it did no harm after all
        if m.passed[s.runs[v, RUN_ROW]] == row:
            m.passed[s.runs[v, RUN_ROW]] = -1


@kernel
def is_full(s: Situation, o: Timing, w: Workspace) -> bool:
    """Whether so many GPUs are in use that preemption is allowed."""
    return bool(w.marks[BUSY] >= o.threshold * s.gpus_up - 1e-9)


@kernel
def may_displace(s: Situation, o: Timing, w: Workspace, job: int) -> bool:
    """Whether a job asks for GPUs within the quota of its tenant while nearly all are in use."""
    t = s.tenant[job]
    return bool(w.used[t] + s.gpus[job] <= s.quota[t] and is_full(s, o, w))


@kernel
def lift(s: Situation, w: Workspace, v: int, sign: int) -> None:
    """Try what is free without a running job (1), or with it again (-1)."""
    for k in range(s.runs[v, RUN_FIRST], s.runs[v, RUN_END]):
        n, gpus = s.pieces[k, 0], sign * s.pieces[k, 1]
        w.trial[n] += gpus
        w.room[n, 0] += gpus * s.run_host[v, 0]
        w.room[n, 1] += gpus * s.run_host[v, 1]
    w.trial_used[s.runs[v, RUN_TENANT]] -= sign * s.runs[v, RUN_GPUS]


@kernel
def list_victims(s: Situation, w: Workspace, tenant: int) -> int:
    """All that could leave; how many."""
    count = 0
    for reaching_over in range(2):
        for v in range(s.runs.shape[0]):
            t, gpus = s.runs[v, RUN_TENANT], s.runs[v, RUN_GPUS]
            least = s.quota[t] + (1 if reaching_over == 1 else gpus)
            if w.gone[v] == 0 and t != tenant and w.trial_used[t] >= least:
                w.gone[v] = 1
                lift(s, w, v, 1)
                w.victims[w.marks[N_VICTIMS] + count] = v
                count += 1
    return count


@kernel
def displace(s: Situation, m: Lasting, w: Workspace, job: int, locality: int) -> bool:
    """Find those whose leaving gives a job its place, spare who need not leave, and start it; whether that worked."""
    for n in range(len(w.free)):
        w.trial[n] = w.free[n]
    for t in range(len(w.used)):
        w.trial_used[t] = w.used[t]
    first, gang = w.marks[N_VICTIMS], s.gpus[job]
    count = list_victims(s, w, s.tenant[job])
    works = count > 0 and seek(s, w, w.trial, job, locality) == gang
    for k in range(first + count - 1, first - 1, -1):
        v = w.victims[k]
        lift(s, w, v, -1)
        if not works or seek(s, w, w.trial, job, locality) == gang:
            w.gone[v] = 0
        else:
            lift(s, w, v, 1)
    if not works:
        return False
    for k in range(first, first + count):
        v = w.victims[k]
        if w.gone[v] == 1:
            w.victims[w.marks[N_VICTIMS]] = v
            w.marks[N_VICTIMS] += 1
            leave(s, w, v)
    w.marks[N_FAILED] = 0
    seek(s, w, w.free, job, locality)
    starts(s, m, w, job)
    return True


@kernel
def leave(s: Situation, w: Workspace, v: int) -> None:
    """A running job is preempted; its cores and memory are free already (`lift`)."""
    gpus = s.runs[v, RUN_GPUS]
    for k in range(s.runs[v, RUN_FIRST], s.runs[v, RUN_END]):
        n = s.pieces[k, 0]
        w.free[n] += s.pieces[k, 1]
        if w.marks[IS_RESERVED] == 1:
            w.spare[n] += s.pieces[k, 1]
    w.marks[LEFT] += gpus
    w.marks[BUSY] -= gpus
    w.used[s.runs[v, RUN_TENANT]] -= gpus
