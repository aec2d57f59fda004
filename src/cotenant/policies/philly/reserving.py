"""The other way to wait: the first job that does not fit gets the earliest place by believed ends, and nobody who would
be in its way starts there (EASY, on nodes)."""

from __future__ import annotations

from cotenant.core.jit import kernel
from cotenant.policies.philly.placing import seek
from cotenant.policies.philly.tables import (
    IS_RESERVED,
    N_FAILED,
    N_PICKED,
    RESERVE,
    RUN_END,
    RUN_FIRST,
    Situation,
    Timing,
    Workspace,
)


@kernel
def is_in_the_way(s: Situation, o: Timing, w: Workspace, job: int) -> bool:
    """Whether a job would still be there when the reservation begins."""
    return o.way == RESERVE and w.marks[IS_RESERVED] == 1 and s.now_s + s.remaining_s[job] > w.until_s[1]


@kernel
def fits_after(s: Situation, w: Workspace, job: int, locality: int, ended: int) -> bool:
    """Whether a job would fit when so many of the running jobs have ended, the soonest first."""
    for n in range(len(w.free)):
        w.trial[n] = w.free[n]
    for k in range(ended):
        v = s.soonest[k]
        if w.gone[v] == 0:
            for piece in range(s.runs[v, RUN_FIRST], s.runs[v, RUN_END]):
                w.trial[s.pieces[piece, 0]] += s.pieces[piece, 1]
    return bool(seek(s, w, w.trial, job, locality) == s.gpus[job])


@kernel
def reserve(s: Situation, w: Workspace, job: int, locality: int) -> None:
    """Reserve the place that a job will have first."""
    low, high = 1, s.runs.shape[0]
    if high == 0 or not fits_after(s, w, job, locality, high):
        return
    while low < high:
        middle = (low + high) // 2
        if fits_after(s, w, job, locality, middle):
            high = middle
        else:
            low = middle + 1
    fits_after(s, w, job, locality, low)
    w.until_s[1] = s.run_end_s[s.soonest[low - 1]]
    w.marks[IS_RESERVED] = 1
    w.marks[N_FAILED] = 0
    for k in range(w.marks[N_PICKED]):
        w.trial[w.pick[k, 0]] -= w.pick[k, 1]
    for n in range(len(w.free)):
        w.spare[n] = min(w.free[n], w.trial[n])
