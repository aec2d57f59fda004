"""The order inside a queue as a list, as Tiresias' released simulator keeps it.

Arrivals, promoted and demoted jobs go to the end. After every decision all who wait move behind those who run, and both
keep their order. So a job that starts goes behind those who run already, one that is stopped goes before those who
wait, and one that was passed over stays behind whoever passed it. A demoted job counts as waiting in the decision that
follows. Here that is one number per job, LISTED, and who runs comes first.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix, State

_STOPS = 2.0**20  # more than there are stops in one decision
_RUNNING = 2.0**50  # more than any place in the list


@kernel
def list_last(s: State, job: int) -> None:
    """Put a job at the end."""
    s.x[N_LISTED] += 1
    s.f[job, LISTED] = s.x[N_LISTED]


@kernel
def list_waiting(s: State, job: int, now: float) -> None:
    """A job begins to wait: at the end if it is new; if it was stopped, first, but after those stopped with it."""
    if s.i[job, DEMOTED] == 1:  # it is at the end already
        s.i[job, DEMOTED] = 0
    elif s.i[job, STARTS] == 0:
        list_last(s, job)
    else:
        if s.t[STOPPED_AT] != now:
            s.t[STOPPED_AT] = now
            s.x[LIST_BASE] = s.x[N_LISTED]
        s.x[N_LISTED] += 1
        s.f[job, LISTED] = s.x[N_LISTED] - s.x[LIST_BASE] - (s.x[LIST_BASE] + 1) * _STOPS


@kernel
def list_demoted(s: State, job: int) -> None:
    """A running job comes into another queue, at its end; it counts as waiting until the decision is over."""
    s.i[job, DEMOTED] = 1
    s.x[N_DEMOTED] += 1
    list_last(s, job)


@kernel
def list_kept(s: State) -> None:
    """A decision is over: demoted jobs that still run go behind those that run already, in their order."""
    s.x[N_DEMOTED] = 0
    while True:
        first = -1
        for k in range(s.x[N_RUN]):
            job = s.run[k]
            if job >= 0 and s.i[job, DEMOTED] == 1 and (first < 0 or s.f[job, LISTED] < s.f[s.run[first], LISTED]):
                first = k
        if first < 0:
            return
        job = s.run[first]
        s.i[job, DEMOTED] = 0
        list_last(s, job)
        s.hot[H_LISTED, first] = listed_key(s.f, s.i, job)


@kernel
def listed_key(f: Matrix, i: IntMatrix, job: int) -> float:
    """The key of a job: who runs comes before who waits."""
    runs = i[job, STATE] == RUNNING and i[job, DEMOTED] == 0
    return float(f[job, LISTED] - (_RUNNING if runs else 0.0))
