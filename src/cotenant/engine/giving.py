"""Idle GPUs go to jobs that wait, without asking, for as long as the last plan says so (`Plan.idle_until_s`).

What a policy in rounds would answer to whatever happens between two of them is always the same: whoever runs goes on,
and what is idle goes to jobs that have nothing, oldest first, each in its fastest pool with room. A simulation does
that here, where no view is made and nobody is called. It is written down when and to whom (`State.given`): the
next view shows it, and policies count time by it.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.observe import keep_active
from cotenant.engine.pools import fill_idle, place_in
from cotenant.engine.walk import claim, commit, open_idle_only, plan_start, within_quota

_WHEN, _WHO, _WHERE = 0, 1, 2
_EARLY_S = 1e-6  # before the end of a round it is the end


@kernel
def gives(s: State, now: float) -> bool:
    """Whether nobody need be asked now: it is before the plan's time, and there is room to write down who gets what."""
    return bool(now < s.t[GIVES_UNTIL] - _EARLY_S and s.x[N_GIVEN] + s.x[IDLE] + 1 < s.given.shape[0])


@kernel
def repeats(s: State, now: float) -> bool:
    """Whether a plan that is due would be the last one again, and there is room to write down that it was; if so, that
    is done."""
    same = s.x[N_HANDLED] == s.x[HANDLED_THEN] and s.x[N_RUNNING] > 0 and s.t[PACE_S] > 0
    if not (same and now < s.t[REPEATS_UNTIL] and s.x[N_GIVEN] + 1 < s.given.shape[0]):
        return False
    _note(s, now, -1, -1)
    return True


@kernel
def _note(s: State, now: float, job: int, pool: int) -> None:
    at = s.x[N_GIVEN]
    s.given[at, _WHEN], s.given[at, _WHO], s.given[at, _WHERE] = now, job, pool
    s.x[N_GIVEN] = at + 1


@kernel
def _count_room(s: State) -> None:
    """Write down the idle GPUs of each pool."""
    for k in range(s.pool.shape[0]):
        room = 0
        for n in range(s.pool[k, POOL_LO], s.pool[k, POOL_HI]):
            room += s.node[n, NODE_FREE]
        s.scratch[k] = room


@kernel
def _somebody_fits(s: State) -> bool:
    """Whether a class of those who wait is small enough for a pool that is open to it."""
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0:
            for k in range(s.pool.shape[0]):
                if s.scratch[k] >= s.cls[c, C_GPUS] and (s.cls[c, C_POOLS] >> k) & 1:
                    return True
    return False


@kernel
def _fastest(s: State, job: int) -> int:
    """The pool with room in which a job is fastest; -1 where it cannot run in any."""
    open_, kind, best, best_rate = s.cls[s.i[job, CLASS], C_POOLS], s.i[job, SPEED_ROW], -1, 0.0
    for k in range(s.pool.shape[0]):
        if s.scratch[k] >= s.i[job, GPUS] and (open_ >> k) & 1:
            rate = s.speed[kind, s.pool[k, POOL_TYPE], 0]
            if rate > best_rate:
                best, best_rate = k, rate
    return int(best)


@kernel
def _choose(s: State, now: float) -> None:
    """Write down who gets what of the room, in order of rows."""
    s.x[N_AROUND] = keep_active(s, s.around, s.x[N_AROUND], s.x[AROUND_SEEN], s.x[NEXT_ARRIVAL])
    s.x[AROUND_SEEN] = s.x[NEXT_ARRIVAL]
    for k in range(s.x[N_AROUND]):
        job = s.around[k]
        if s.i[job, STATE] == WAITING:
            pool = _fastest(s, job)
            if pool >= 0:
                s.scratch[pool] -= s.i[job, GPUS]
                _note(s, now, job, pool)


@kernel
def _largest_first(s: State, first: int, count: int) -> None:
    """Write the entries of `given` from `first` on to the scratch of stops, larger gangs first, then in their order."""
    for k in range(count):
        at, gpus = k, s.i[int(s.given[first + k, _WHO]), GPUS]
        while at > 0 and s.i[int(s.given[s.stops[at - 1], _WHO]), GPUS] < gpus:
            s.stops[at] = s.stops[at - 1]
            at -= 1
        s.stops[at] = first + k


@kernel
def _seat(s: State, rule: Rule, first: int, count: int, now: float) -> None:
    """Start whoever was chosen; where one finds no place in its pool after all, others may have what is idle."""
    open_idle_only(s)
    _largest_first(s, first, count)
    missed = 0
    for k in range(count):
        job, pool = int(s.given[s.stops[k], _WHO]), int(s.given[s.stops[k], _WHERE])
        found = place_in(s, s.i[job, CLASS], job, pool) if within_quota(s, job) else 0
        if found > 0:
            plan_start(s, job, claim(s, job, found), -1)
        else:
            missed += 1
    commit(s, rule, now)
    if missed > 0:
        fill_idle(s, rule, s.around[: s.x[N_AROUND]], now)


@kernel
def give_idle(s: State, rule: Rule, now: float) -> None:
    """Something has happened between two plans: give away what is idle, and write it down, also that nobody got it."""
    s.t[NEXT_CALL] = s.t[GIVES_UNTIL]
    if s.x[N_WAITING] == 0 or s.x[IDLE] == 0:
        return
    first = s.x[N_GIVEN]
    _count_room(s)
    if _somebody_fits(s):
        _choose(s, now)
    count = s.x[N_GIVEN] - first
    if count > 0:
        _seat(s, rule, first, count, now)
    else:
        _note(s, now, -1, -1)
