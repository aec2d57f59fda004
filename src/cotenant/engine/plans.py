"""Whole plans of Python policies: checked against the cluster, then turned into stops and starts.

A plan that breaks a gang, uses a GPU that is not there, passes a limit (jobs per GPU, GPU memory, quota, cores, host
memory) or names a job that is not active is an error of the policy, told in one line; nothing is changed then.
"""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import ALONE, Places, Plan, Slices, Terms
from cotenant.core.state import Rule, State
from cotenant.core.view import View
from cotenant.engine.plan_check import check_plan, misplaced
from cotenant.engine.resizing import go_on, lay_slices, let_go, set_size
from cotenant.engine.walk import commit

_TOLERANCE_GIB = 1e-6


def carry_out_plan(state: State, rule: Rule, plan: Plan, view: View, name: str, now_s: float) -> None:
    """Check a whole plan, then turn the difference to what runs into stops and starts."""
    shared = bool(state.x[col.SHARING])
    if plan.keep and not plan.run and not plan.stop and _only_shares(plan, state):
        for row, terms in plan.terms.items():
            state.f[row, col.SHARE] = terms.share
        state.t[col.NEXT_CALL] = plan.next_s
        return
    wanted = _whole(plan, view, shared)
    if shared:
        _check_gangs(wanted, state, view, name)
        wanted = _resolve(wanted, state, name)
        _check_shares(wanted, plan, state, view, name)
    else:
        check_plan({row: _pairs(places) for row, places in wanted.items()}, state, view, name)
    stops, starts = _difference(wanted, view, shared)
    starts, resized = _resized(starts, state, view)
    if shared:  # before anybody leaves: what was agreed with those who run is theirs until then
        _write_terms(plan, wanted, [row for row, _, _ in starts], state, view)
    for row, places in resized:
        let_go(state, rule, row, _size(places), now_s)
    state.stops[: len(stops)] = stops
    state.x[col.N_STOPS], state.x[col.N_PLANNED] = len(stops), len(starts)
    for at, (row, places, moved) in enumerate(starts):
        state.starts[at] = row, lay_slices(state, places), moved, -1
    commit(state, rule, now_s)
    for row, places in resized:
        go_on(state, rule, row, lay_slices(state, places), float(plan.pause_s.get(row, 0.0)), now_s)
    state.t[col.NEXT_CALL] = plan.next_s


def _only_shares(plan: Plan, state: State) -> bool:
    """Whether a plan changes nothing but the shares of jobs that run: then no limit can be passed."""
    return all(
        state.i[row, col.STATE] == col.RUNNING
        and (state.f[row, col.CAP], state.i[row, col.TURN]) == (terms.cap, terms.turn)
        and bool(state.i[row, col.OPPORTUNISTIC]) == terms.opportunistic
        for row, terms in plan.terms.items()
    )


def _whole(plan: Plan, view: View, shared: bool) -> dict[int, Places]:
    """Everybody who is to run, and where; masks are 0 where the plan does not say."""
    wanted = {row: _with_masks(slices) for row, slices in plan.run.items()}
    if plan.keep:
        for row in view.rows[view.running].tolist():
            if row not in wanted and row not in plan.stop:
                wanted[row] = view.places(row)
    return wanted


def _with_masks(slices: Slices | Places) -> Places:
    return tuple((int(piece[0]), int(piece[1]), int(piece[2]) if len(piece) > 2 else 0) for piece in slices)


def _check_gangs(wanted: dict[int, Places], state: State, view: View, name: str) -> None:
    """Only active jobs, gangs whole, on nodes that are there, up and open to them."""
    active = set(view.rows.tolist())
    for row, places in wanted.items():
        complaint = (
            f"row {row}, which is not active" if row not in active else misplaced(state, view, row, _pairs(places))
        )
        if complaint:
            raise InputError(f"policy '{name}': plan runs job {complaint}")
        for node, gpus, _ in places:
            if gpus > state.node[node, col.NODE_CAP]:
                raise InputError(f"policy '{name}': plan puts {gpus} GPUs on node {node}, which has too few")


def _pairs(places: Places) -> Slices:
    return tuple((node, gpus) for node, gpus, _ in places)


def _resolve(wanted: dict[int, Places], state: State, name: str) -> dict[int, Places]:
    """Masks for slices that have none: the first GPUs of the node that nobody uses."""
    taken: dict[int, int] = {}
    for places in wanted.values():
        for node, gpus, mask in places:
            if mask:
                size = int(state.node[node, col.NODE_SIZE])
                if mask.bit_count() != gpus or mask >> size:
                    raise InputError(f"policy '{name}': mask {mask:b} does not name {gpus} GPUs of node {node}")
                taken[node] = taken.get(node, 0) | mask
    found: dict[int, Places] = {}
    for row, places in wanted.items():
        pieces = []
        for node, gpus, given in places:
            mask = given
            if not mask:
                free = ~taken.get(node, 0) & ((1 << int(state.node[node, col.NODE_SIZE])) - 1)
                for _ in range(gpus):
                    mask |= free & -free
                    free &= free - 1
                if mask.bit_count() != gpus:
                    raise InputError(f"policy '{name}': plan wants {gpus} unused GPUs on node {node}, which has fewer")
                taken[node] = taken.get(node, 0) | mask
            pieces.append((node, gpus, mask))
        found[row] = tuple(pieces)
    return found


def _check_shares(wanted: dict[int, Places], plan: Plan, state: State, view: View, name: str) -> None:
    """Jobs and memory per GPU, quotas, cores and host memory."""
    users: dict[tuple[int, int], int] = {}
    memory: dict[tuple[int, int], dict[int, float]] = {}
    quota = np.zeros(len(state.quota), np.int64)
    for row, places in wanted.items():
        terms = plan.terms.get(row)
        need, turn = _memory(terms, row, state, view), int(state.i[row, col.TURN]) if terms is None else terms.turn
        if not _is_opportunistic(plan.terms.get(row), row, state):
            quota[state.i[row, col.TENANT]] += _size(places)
        for node, _, mask in places:
            left = mask
            while left:
                place = node, (left & -left).bit_length() - 1
                left &= left - 1
                users[place] = users.get(place, 0) + 1
                turns = memory.setdefault(place, {})
                turns[turn] = turns.get(turn, 0.0) + need
    for (node, gpu), count in users.items():
        if count > col.SLOTS:
            raise InputError(
                f"policy '{name}': plan puts {count} jobs on GPU {gpu} of node {node}; {col.SLOTS} is most"
            )
    limits = state.gpu_gib[state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE]].tolist()
    for (node, gpu), turns in memory.items():
        gib = turns.pop(0, 0.0) + max(turns.values(), default=0.0)  # a suspended job has left the GPU
        if gib > limits[node] + _TOLERANCE_GIB:
            raise InputError(
                f"policy '{name}': plan needs {gib:.1f} GiB on GPU {gpu} of node {node}, which has {limits[node]:.1f}"
            )
    if (quota > state.quota[:, col.Q_LIMIT]).any():
        raise InputError(
            f"policy '{name}': plan puts tenant {int(np.argmax(quota > state.quota[:, 0]))} over its quota"
        )
    if state.x[col.USE_HOST]:
        _check_hosts(wanted, state, name)


def _is_opportunistic(terms: Terms | None, row: int, state: State) -> bool:
    """Whether a job will not count against its tenant's quota; as it is now where there are no terms."""
    if terms is not None:
        return terms.opportunistic
    return bool(state.i[row, col.STATE] == col.RUNNING and state.i[row, col.OPPORTUNISTIC])


def _check_hosts(wanted: dict[int, Places], state: State, name: str) -> None:
    used = np.zeros((len(state.node), 2))
    for row, places in wanted.items():
        for node, gpus, _ in places:
            used[node] += gpus / max(int(state.i[row, col.GPUS]), 1) * state.f[row, [col.CPUS, col.MEM]]
    over = (used > state.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]] + 1e-6).any(axis=1)
    if over.any():
        raise InputError(f"policy '{name}': plan asks node {int(np.argmax(over))} for more cores or memory than it has")


def _memory(terms: Terms | None, row: int, state: State, view: View) -> float:
    """GiB per GPU of a job on these terms; as it is now where there are none."""
    together = view.facts.together
    if terms is None or together is None:
        return float(state.f[row, col.GPU_GIB])
    level = int(state.i[row, col.LEVEL]) if state.i[row, col.STATE] == col.RUNNING else terms.level
    return float(together.memory_gib[state.i[row, col.SPEED_ROW], level]) * terms.cap


def _difference(wanted: dict[int, Places], view: View, shared: bool) -> tuple[list[int], list[tuple[int, Places, int]]]:
    """Who stops, and who starts where (1: it runs elsewhere now)."""
    running, named = view.running, np.zeros(int(view.rows.max(initial=-1)) + 1, bool)
    named[list(wanted)] = True
    concerned = running | named[view.rows]
    stops: list[int] = []
    starts: list[tuple[int, Places, int]] = []
    for row, runs in zip(view.rows[concerned].tolist(), running[concerned].tolist(), strict=True):
        places = wanted.get(row)
        if places is None:
            stops.append(row)
        elif not runs:
            starts.append((row, places, 0))
        elif sorted(_seen(places, shared)) != sorted(_seen(view.places(row), shared)):
            starts.append((row, places, 1))
    return stops, starts


def _resized(
    starts: list[tuple[int, Places, int]], state: State, view: View
) -> tuple[list[tuple[int, Places, int]], list[tuple[int, Places]]]:
    """Elastic jobs that run go on elsewhere without a stop; those that start get the size of their place."""
    elastic = view.facts.elastic
    if elastic is None:
        return starts, []
    for row, places, moved in starts:
        if elastic[row] and not moved:
            set_size(state, row, _size(places))
    rest = [item for item in starts if not (item[2] and elastic[item[0]])]
    return rest, [(row, places) for row, places, moved in starts if moved and elastic[row]]


def _size(places: Places) -> int:
    return sum(gpus for _, gpus, _ in places)


def _seen(places: Places, shared: bool) -> list[tuple[int, ...]]:
    return [place if shared else place[:2] for place in places]


def _write_terms(plan: Plan, wanted: dict[int, Places], starts: list[int], state: State, view: View) -> None:
    """What was agreed with each job; jobs that go on unnamed keep what they have."""
    new = set(starts)
    for row in wanted:
        terms = plan.terms.get(row)
        if terms is None:
            if row not in new:
                continue
            terms = ALONE
        if row in new:
            state.i[row, col.LEVEL] = terms.level
        state.f[row, col.GPU_GIB] = _memory(terms, row, state, view)
        state.f[row, col.SHARE], state.f[row, col.CAP] = terms.share, terms.cap
        if state.i[row, col.STATE] == col.RUNNING:  # what it holds now changes sides at once
            counted = int(state.i[row, col.OPPORTUNISTIC]) - int(terms.opportunistic)
            state.quota[state.i[row, col.TENANT], col.Q_USED] += counted * state.i[row, col.GPUS]
        state.i[row, col.OPPORTUNISTIC] = int(terms.opportunistic)
        state.i[row, col.TURN] = terms.turn
