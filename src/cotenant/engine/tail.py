"""The greedy walk from the end of the line: only those running jobs are looked at that could lose their place.

It decides as `cotenant.engine.walk` does. A waiting job whose turn comes before that of everybody in the tail finds its
place among idle GPUs and those of the tail, which grows until there is one or until it has reached the job itself.
Whoever runs ahead of the tail keeps his GPUs, since nobody was given any of them. From the first waiting job on whose
turn comes inside the tail, waiting and running jobs are merged as in any walk.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.behind import NOBODY, begin_tail, next_behind, open_tail
from cotenant.engine.heaps import remove_waiting
from cotenant.engine.keys import before_running, with_slack
from cotenant.engine.lines import advance_line, line_up
from cotenant.engine.openings import goes_by_node, may_open
from cotenant.engine.sorting import AT, KEPT, WHO
from cotenant.engine.victims import goes_to_one_node, may_matter
from cotenant.engine.walk import merge_and_commit, open_idle_only, visit_waiting
from cotenant.placement.fit import UNCLAIMED, find_place


@kernel
def enough_behind(s: State, rule: Rule, c: int, job: int, now: float) -> bool:
    """Whether the running jobs behind a waiting one of class c hold enough GPUs, so that stopping some might help."""
    behind, keys, key1, key2 = 0, s.keys, s.f[job, KEY1], s.f[job, KEY2]
    begin_tail(s, rule, now)
    place = next_behind(s, rule, now)
    s.t[LAST_KEY] = with_slack(keys[0, s.order[KEPT, s.x[N_LINED] - 1]]) if s.x[N_LINED] > 0 else -math.inf
    while place != NOBODY and (keys[0, place] > key1 or (keys[0, place] == key1 and keys[1, place] >= key2)):
        behind += s.i[s.run[place], GPUS]
        if behind + s.x[IDLE] >= s.cls[c, C_GPUS]:
            return True
        s.x[LINE_END] -= 1
        place = next_behind(s, rule, now)
    s.cls[c, C_HEAD], s.cls[c, C_BEHIND] = job, behind
    s.cls[c, C_STARTED], s.cls[c, C_EPOCH] = s.x[N_STARTED_GPUS], s.x[EPOCH]
    return False


@kernel
def _reach(s: State, rule: Rule, c: int, job: int, now: float) -> None:
    """Let the tail grow until a waiting job finds a place in it, or until all who run behind the job are in it."""
    one = goes_to_one_node(s, c)
    if s.cls[c, C_GPUS] <= s.x[LEFT] and not (one and s.cls[c, C_GPUS] > s.x[MOST_OPEN]):
        if find_place(s, c, job, UNCLAIMED) > 0:
            return
        if one:
            s.x[MOST_OPEN] = s.cls[c, C_GPUS] - 1
    while True:
        place = next_behind(s, rule, now)
        if place == NOBODY or not before_running(s.f, job, s.keys, place, s.run[place]):
            return
        open_tail(s, place)
        enough = s.cls[c, C_GPUS] <= s.x[LEFT] and may_matter(s, c, s.i[s.run[place], SLICE], UNCLAIMED)
        if enough and one:
            s.x[MOST_OPEN] = s.cls[c, C_GPUS]
        if enough and (one or find_place(s, c, job, UNCLAIMED) > 0):
            return


@kernel
def walk_from_tail(s: State, rule: Rule, hopeless: int, now: float) -> None:
    """`walk_preemptive`, for plain tables (`cotenant.engine.behind.is_plain`); so many classes of the line were found
    hopeless in this decision."""
    line_up(s)
    begin_tail(s, rule, now)
    open_idle_only(s)
    end, line = s.order.shape[1], 0
    while line < s.x[N_LINES]:
        c = s.lines[line]
        job, first = s.heap[s.cls[c, C_OFFSET]], s.x[TAIL_FIRST]
        if first < end and not before_running(s.f, job, s.keys, s.order[AT, first], s.order[WHO, first]):
            break
        if goes_by_node(s, c) and (line < hopeless or not may_open(s, rule, c, job, now)):
            s.failed[c] = W_FRAGMENTED
            line += 1
            continue
        _reach(s, rule, c, job, now)
        if visit_waiting(s, job, True, s.order[WHO], s.x[TAIL_FIRST], end):
            remove_waiting(s, job)
            advance_line(s, line)
        else:
            line += 1
    merge_and_commit(s, rule, line, s.x[TAIL_FIRST], end, now)
