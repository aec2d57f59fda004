"""Groups that share GPUs, told by pool, where leaving takes time: whoever stays, stays within what a GPU holds."""

from __future__ import annotations

import numpy as np
import pytest
from test_live_tables import Live, arrived

import effort
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.plan import Plan, Pools
from cotenant.core.tenants import Tenant, Tree
from cotenant.engine.invariants import check
from cotenant.engine.observe import places_of


def carry_out(live: Live, groups: list[list[int]], now_s: float) -> None:
    """Let these groups run, the first of each as host, and nobody else."""
    rows = [row for group in groups for row in group]
    hosts = [-1 if row == group[0] else group[0] for group in groups for row in group]
    pools = Pools(np.array(rows, np.int64), np.zeros(len(rows), np.int64), np.array(hosts, np.int64))
    live.engine.carry_out(live.engine.view(now_s), now_s, Plan(pools=pools))
    live.engine.settle(now_s)
    check(live.tables.state)


def together(live: Live, count: int) -> list[int]:
    """Jobs that run on the first GPU of the first node, the oldest as host."""
    jobs = [live.job(1) for _ in range(count)]
    for job in jobs:
        live.engine.observe(0.0, [arrived(job), Event(Kind.ADOPTED, job, ((0, 1, 1),), since_s=0.0)])
    return jobs


def waiting(live: Live, count: int, gpus: int = 1) -> list[int]:
    jobs = [live.job(gpus) for _ in range(count)]
    live.engine.observe(0.0, [arrived(job) for job in jobs])
    return jobs


def test_two_guests_left_behind_by_their_host_do_not_both_keep_its_gpus() -> None:
    live = Live("muri-s", "1x2")
    _, one, two = together(live, 3)
    new = waiting(live, 4)
    carry_out(live, [[one, *new[:2]], [two, *new[2:]]], 1.0)
    state = live.tables.state
    assert places_of(state, one) == ((0, 1, 1),), "the first stays"
    assert places_of(state, two) == ((0, 1, 2),), "the other has GPUs for a group of its own"
    assert [places_of(state, job) for job in new] == [((0, 1, 1),)] * 2 + [((0, 1, 2),)] * 2


def test_a_host_does_not_go_on_beside_the_group_of_a_guest_that_keeps_its_gpus() -> None:
    live = Live("muri-s", "1x2")
    host, guest = together(live, 2)
    new, (large,) = waiting(live, 3), waiting(live, 1, gpus=2)
    carry_out(live, [[guest, *new], [large]], 1.0)
    state = live.tables.state
    assert state.i[large, col.STATE] == col.WAITING, "somebody who is chosen finds no place"
    assert places_of(state, host) == ((0, 1, 2),), "it has what is idle instead"
    assert {places_of(state, job) for job in (guest, *new)} == {((0, 1, 1),)}


CALM = Tree((Tenant("calm", preempts=False), Tenant("other")))  # inside `calm` nobody is displaced


@pytest.mark.parametrize("tenants", [None, CALM])
@pytest.mark.parametrize("seed", effort.first(3, range(30)))
def test_random_groups_fit_their_gpus(seed: int, tenants: Tree | None) -> None:
    draw = np.random.default_rng(seed)
    live = Live("muri-s", "2x2", tenants)
    names = ["calm", "other"] if tenants else [""]
    jobs = [live.job(int(draw.choice([1, 1, 2])), tenant=str(draw.choice(names))) for _ in range(14)]
    live.engine.observe(0.0, [arrived(job) for job in jobs])
    for step in range(1, 30):
        state = live.tables.state
        line, groups = draw.permutation(jobs)[: draw.integers(2, 14)].tolist(), list[list[int]]()
        while line:
            first = line.pop()
            alike = [job for job in line if live.size(job) == live.size(first)][: draw.integers(0, 4)]
            groups.append([first, *alike])
            line = [job for job in line if job not in alike]
        carry_out(live, groups, float(step))
        gone = [job for job in jobs if state.i[job, col.LEAVING] and draw.random() < 0.6]
        live.engine.observe(step + 0.5, [Event(Kind.AGAIN, job) for job in gone])
        live.engine.settle(step + 0.5)
        check(state)
