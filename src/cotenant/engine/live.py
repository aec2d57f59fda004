"""Kernels that load what really runs and waits into fresh tables, so that a decision or a forecast can follow."""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.columns import (
    ATTAINED,
    DONE,
    FIRST,
    FREE_SLICE,
    GPUS,
    HOST,
    KNOB,
    N_RUN,
    N_WAITING,
    NEXT_ARRIVAL,
    OCCUPIED,
    OWES,
    QUEUE,
    ROUND_S,
    RUNNING,
    SHARING,
    SINCE,
    SLICE,
    SLICE_MASK,
    SLICE_NEXT,
    STATE,
    SUBMIT,
    WAITED,
    WAITING,
    WARM,
)
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.ledger import enqueue, heat, new_slices, schedule_run, start
from cotenant.engine.resizing import set_size
from cotenant.engine.sharing import copy_slices


@entry
def enter_all(
    s: State, rule: Rule, attained_s: Floats, done_s: Floats, first_s: Floats, waits_s: Floats, forgiven_s: Floats,
    now: float,
) -> None:  # fmt: skip
    """Every row of the tables begins to wait now, with what it has attained and done before.

    Where a rule promotes who has starved, `waits_s` is for how long a row has waited without a break and `forgiven_s`
    what it had attained when it was promoted last, which does not count for its priority; that is written here for
    whoever is to be promoted by now.
    """
    starves = rule.numbers[KNOB] < math.inf
    for job in range(s.f.shape[0]):
        counts_s = attained_s[job] - forgiven_s[job] if starves else attained_s[job]
        queue = _queue_of(s, rule, job, counts_s)
        if starves and queue > 0 and waits_s[job] > 0 and waits_s[job] >= rule.numbers[KNOB] * counts_s:
            forgiven_s[job], counts_s, queue = attained_s[job], 0.0, 0
        s.f[job, ATTAINED] = counts_s
        s.f[job, OCCUPIED] = attained_s[job]
        s.f[job, DONE] = done_s[job]
        s.f[job, FIRST] = first_s[job]
        s.f[job, WAITED] = now - s.f[job, SUBMIT] - attained_s[job]
        s.i[job, OWES] = 1 if done_s[job] > 0 else 0
        s.i[job, QUEUE] = queue
        enqueue(s, rule, job, now)
        if starves:  # the clock of its next promotion has begun when it began to wait
            s.f[job, SINCE] -= waits_s[job]
            s.f[job, WAITED] -= waits_s[job]
    s.x[NEXT_ARRIVAL] = s.f.shape[0]


@kernel
def _queue_of(s: State, rule: Rule, job: int, counts_s: float) -> int:
    """The queue of a job with so much attained."""
    queue = 0
    while queue < len(rule.thresholds) and counts_s * s.i[job, GPUS] >= rule.thresholds[queue]:
        queue += 1
    return queue


@entry
def enter_running(
    s: State, rule: Rule, jobs: Ints, hosts: Ints, triples: IntMatrix, begins: Ints, since_s: Floats, now: float
) -> None:
    """Rows that wait are in fact running since a moment in the past, each on its stretch of (node, GPUs, mask).

    `hosts` names for each guest the row of its host, which comes before it; -1 for the others. Masks matter where GPUs
    are shared: 0 takes GPUs that nobody uses or, for a guest, those of its host.
    """
    for k in range(len(jobs)):
        job, host = jobs[k], hosts[k]
        count = begins[k + 1] - begins[k]
        if s.i[job, STATE] != WAITING or count == 0:
            continue
        s.i[job, OWES] = 0
        gpus = triples[begins[k] : begins[k + 1], 1].sum()
        if gpus != s.i[job, GPUS]:  # an elastic job may have others than it asked for
            set_size(s, job, gpus)
        if host >= 0 and s.i[host, STATE] == RUNNING and triples[begins[k], 2] == 0:
            head = copy_slices(s.slices, s.x, FREE_SLICE, s.i[host, SLICE])
        else:
            for n in range(count):
                s.pick[n, 0], s.pick[n, 1] = triples[begins[k] + n, 0], triples[begins[k] + n, 1]
            head = new_slices(s, count)
            at, n = head, begins[k]
            while at >= 0 and s.x[SHARING] == 1:
                s.slices[at, SLICE_MASK] = triples[n, 2]
                at, n = s.slices[at, SLICE_NEXT], n + 1
        start(s, rule, job, head, now)
        if host >= 0 and s.i[host, STATE] == RUNNING:
            s.i[job, HOST] = host
        s.f[job, SINCE] = since_s[job]
        s.f[job, WARM] = now
        s.f[job, ATTAINED] -= now - since_s[job]
        s.f[job, OCCUPIED] -= now - since_s[job]
        heat(s.f, s.i, s.slices, s.hot, s.x, job, s.x[N_RUN] - 1)  # it started last
        schedule_run(s.f, s.i, s.events, s.x, rule.thresholds, job)


def placements(s: State) -> dict[int, tuple[tuple[int, int], ...]]:
    """(node, GPUs) pairs of every running row."""
    running = np.flatnonzero(s.i[:, STATE] == RUNNING)
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for job, (node, gpus, at, _) in zip(running.tolist(), s.slices[s.i[running, SLICE]].tolist(), strict=True):
        if at < 0:
            found[job] = ((node, gpus),)
            continue
        pairs = [(node, gpus)]
        while at >= 0:
            node, gpus, at, _ = s.slices[at].tolist()
            pairs.append((node, gpus))
        found[job] = tuple(pairs)
    return found


def masks(s: State, job: int) -> tuple[tuple[int, int], ...]:
    """(node, mask of its GPUs) of a running row, in order of nodes; masks are 0 unless GPUs are shared."""
    found, at = [], int(s.i[job, SLICE])
    while at >= 0:
        node, _, at, mask = s.slices[at].tolist()
        found.append((node, mask))
    return tuple(sorted(found))


def next_turn_s(s: State, rule: Rule, now: float) -> float:
    """When the order of a compiled policy changes by itself while somebody waits: a queue's limit, a promotion, or a
    new round.

    Whatever else may change it is a start, an end or an arrival, and known when it happens.
    """
    if s.x[N_WAITING] == 0:
        return np.inf
    found = np.inf
    if len(rule.thresholds):
        running = np.flatnonzero((s.i[:, STATE] == RUNNING) & (s.i[:, QUEUE] < len(rule.thresholds)))
        limit_s = rule.thresholds[s.i[running, QUEUE]] / s.i[running, GPUS]
        found = float(np.min(s.f[running, SINCE] + limit_s - s.f[running, ATTAINED], initial=np.inf))
    if rule.numbers[KNOB] < np.inf:
        behind = np.flatnonzero((s.i[:, STATE] == WAITING) & (s.i[:, QUEUE] > 0))
        promoted_s = s.f[behind, SINCE] + rule.numbers[KNOB] * s.f[behind, ATTAINED]
        found = min(found, float(np.min(promoted_s, initial=np.inf)))
    round_s = float(rule.numbers[ROUND_S])
    return min(found, (np.floor(now / round_s) + 1) * round_s) if round_s < np.inf else found
