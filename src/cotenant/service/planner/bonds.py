"""What keeps live jobs from being stopped and moved at will, and how long they take for sure: for promises."""

from __future__ import annotations

from math import exp, inf

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.view import Bonds
from cotenant.engine.live_rows import LiveRows
from cotenant.engine.observe import places_of
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.follower import Follower
from cotenant.service.store.job import LiveJob

SURE = 0.25  # spread of what is believed of a job's length, beyond which nothing is promised without its owner's word


def bonds_of(follower: Follower, types: dict[str, str]) -> Bonds:
    """Of all jobs. Whether one can save is known once its process has said so; until then it cannot."""
    tables, book, state = follower.tables, follower.book, follower.tables.state
    rows, live = len(tables), list(follower.row_of.values())
    stays, guessed, reserve_s = _in_calm_tenants(tables), np.zeros(rows, bool), np.zeros(rows)
    pinned: list[tuple[int, int, float]] = []
    for name, row in follower.row_of.items():
        job = book.active.get(name)
        if job is None:
            continue
        stays[row] |= not job.spec.preemptible
        if job.spec.deadline_s:
            reserve_s[row] = sure_s(follower.beliefs, job, types)
            guessed[row] = np.isnan(reserve_s[row])
        if state.i[row, col.STATE] == col.PINNED and not {node for node, _ in job.last.gpus} & follower.shut:
            until_s = job.last.launched_s + job.spec.expected_s if job.spec.expected_s else inf
            pinned += [(node, gpus, until_s) for node, gpus, _ in places_of(state, row)]
    shut = {number for name in follower.shut for number in follower.nodes.numbers(name)}
    handover_s = float(np.nan_to_num(state.f[live, col.SAVING]).max(initial=0.0))
    loses = state.i[:rows, col.YIELDS] < 2
    return Bonds(stays, loses, guessed, np.nan_to_num(reserve_s), handover_s, tuple(pinned), tuple(sorted(shut)))


def _in_calm_tenants(tables: LiveRows) -> NDArray[np.bool_]:
    """By row: whether nobody is displaced inside its tenant."""
    state = tables.state
    stays = state.quota[state.i[: len(tables), col.TENANT], col.Q_STAYS] == 1
    return np.asarray(stays & (state.x[col.TENANTS] == 1))


def sure_s(beliefs: LiveBeliefs, job: LiveJob, types: dict[str, str]) -> float:
    """Seconds that a job takes at most, its start included; NaN where nobody has said so and too little is known.

    Its owner's word counts in full, whatever its like took; of others a little more than they were seen to take.
    """
    if job.spec.expected_s:
        return job.spec.expected_s
    belief = beliefs.duration(job, types)
    if belief.spread > SURE:
        return np.nan
    return belief.least_s * exp(2 * belief.spread) if belief.spread else 0.0
