"""What a plan must respect before the engine carries it out; every complaint names the policy, the job and the rule.

Gangs whole (elastic ones of a size they take) and inside one open pool, GPUs within their node, jobs and memory within
their GPU or slice of one, cores and host memory within their node, tenants within their quotas. Of a plan that names
pools only the names are checked: its places are the engine's own. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.columns import RUNNING, STATE, WAITING
from cotenant.core.errors import InputError
from cotenant.core.jit import kernel
from cotenant.core.plan import Places, Plan, Slices, Terms
from cotenant.core.state import IntMatrix, Matrix, State
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.engine.good_changes import are_good, as_named
from cotenant.engine.observe import pinned_gpus, places_of
from cotenant.engine.partitions import about_slices

Wanted = dict[int, Places]
_SLACK = 1e-6


def check_plan(state: State, plan: Plan, view: View, name: str) -> Wanted:
    """Everybody who is to run under a plan, and where; masks are 0 unless GPUs are shared."""
    wanted = {row: _with_masks(slices) for row, slices in plan.run.items()}
    if plan.keep:
        for row in view.rows[view.running].tolist():
            if row not in wanted and row not in plan.stop:
                wanted[row] = view.places(row)
    complaint = _about_gangs(state, wanted, view)
    if not complaint and state.x[col.SHARING]:
        complaint = _resolve(state, wanted, {}) or _about_gpus(state, wanted, plan, view)
    elif not complaint:
        complaint = _about_nodes(state, wanted)
    complaint = complaint or _about_hosts(state, wanted) or _about_quotas(state, wanted, plan)
    if complaint:
        raise InputError(f"policy '{name}': plan {complaint}")
    return wanted


def only_starts(state: State, plan: Plan, view: View) -> bool:
    """Whether a plan lets everybody go on as it is, or with another share, and only starts others.

    Then it is judged by what is free, and costs what changes.
    """
    if not plan.keep or plan.stop or view.facts.elastic is not None or view.facts.slicing is not None:
        return False
    if state.x[col.LAGS] or state.x[col.USE_HOST] or (plan.terms and not _gives_shares(state, plan, view)):
        return False
    return all(0 <= row < len(state.i) and state.i[row, col.STATE] == col.WAITING for row in plan.run)


def _gives_shares(state: State, plan: Plan, view: View) -> bool:
    """Whether terms are for those who start, or are other shares of those who run."""
    together = view.facts.together
    if not state.x[col.SHARING] or (together is not None and together.soft is not None):
        return False
    return only_shares(state, {row: terms for row, terms in plan.terms.items() if row not in plan.run})


def only_shares(state: State, terms: Mapping[int, Terms]) -> bool:
    """Whether these terms change nothing but the shares of jobs that run: then no limit can be passed."""
    if not terms:
        return True
    rows = np.fromiter(terms, np.int64, len(terms))
    if ((rows < 0) | (rows >= len(state.i))).any():
        return False
    given = [(said.turn, said.sliced, said.column, said.opportunistic) for said in terms.values()]
    now = state.i[rows][:, [col.TURN, col.SLICED, col.COLUMN, col.OPPORTUNISTIC]]
    return bool(
        (state.i[rows, col.STATE] == col.RUNNING).all()
        and (state.f[rows, col.CAP] == [said.cap for said in terms.values()]).all()
        and (now == np.array(given, np.int64).reshape(-1, 4)).all()
    )


def check_starts(state: State, plan: Plan, view: View, name: str) -> Wanted:
    """`check_plan` for a plan that only starts jobs: who starts, and where."""
    wanted = {row: _with_masks(slices) for row, slices in plan.run.items()}
    if state.x[col.SHARING] and is_good(state, plan, wanted, view):
        return wanted
    complaint = _about_gangs(state, wanted, view)
    if not complaint and state.x[col.SHARING]:
        complaint = _resolve(state, wanted, _taken_on(state, wanted)) or _about_gpus(
            state, {**wanted, **_beside(state, wanted)}, plan, view
        )
    elif not complaint:
        complaint = _about_free(state, wanted)
    held = state.quota[:, col.Q_USED].copy()
    for row, places in wanted.items():
        if not _is_opportunistic(state, plan.terms.get(row), row):
            held[state.i[row, col.TENANT]] += size_of(places)
    complaint = complaint or _over_quota(state, held)
    if complaint:
        raise InputError(f"policy '{name}': plan {complaint}")
    return wanted


def is_good(state: State, plan: Plan, named: Wanted, view: View) -> bool:
    """Whether it is plain that no limit is passed when these are where they are to be, and all others stay."""
    if any(terms.sliced for terms in plan.terms.values()):
        return False
    needs = {row: memory_gib(state, plan.terms.get(row), row, view) for row in named}
    return bool(are_good(state, as_named(named, plan, needs), view.rows))


def changed_by(state: State, plan: Plan, view: View) -> Wanted | None:
    """Whom a good plan names, and where they are to be; None where the whole of it has to be looked at.

    Nobody stops, changes its size or is cut, and hosts do not bind: what a plan does not name stays as it is.
    """
    together, facts = view.facts.together, view.facts
    if not plan.keep or plan.stop or facts.elastic is not None or facts.slicing is not None:
        return None
    soft = together is not None and together.soft is not None
    if soft or not state.x[col.SHARING] or state.x[col.LAGS] or state.x[col.USE_HOST]:
        return None
    if state.x[col.TENANTS] == 1 and state.quota[:, col.Q_STAYS].any():
        return None
    named = {row: _with_masks(slices) for row, slices in plan.run.items()}
    for row in plan.terms:
        places = named.setdefault(row, view.places(row))
        if not places:
            return None
    return named if is_good(state, plan, named, view) else None


def _about_free(state: State, wanted: Wanted) -> str:
    """GPUs per node, where every GPU has one job and nobody leaves."""
    used: dict[int, int] = {}
    for places in wanted.values():
        for node, gpus, _ in places:
            used[node] = used.get(node, 0) + gpus
    over = [node for node, gpus in used.items() if gpus > state.node[node, col.NODE_FREE]]
    return f"puts {used[over[0]]} GPUs on node {over[0]}, which has too few" if over else ""


def _taken_on(state: State, wanted: Wanted) -> dict[int, int]:
    """Masks of the GPUs that have jobs, of the nodes on which others are to start."""
    taken: dict[int, int] = {}
    for node in {node for places in wanted.values() for node, _, _ in places}:
        first, end = state.gpu_first[node : node + 2].tolist()
        busy = np.flatnonzero(state.gpu[first:end, 0] >= 0).tolist()
        taken[node] = sum(1 << k for k in busy)
    return taken


def _beside(state: State, wanted: Wanted) -> Wanted:
    """The jobs that run on GPUs on which others are to start, and where they sit."""
    found: set[int] = set()
    for places in wanted.values():
        for node, _, mask in places:
            first = int(state.gpu_first[node])
            users = state.gpu[first : first + mask.bit_length()].tolist()
            found.update(job for k, jobs in enumerate(users) if mask >> k & 1 for job in jobs)
    return {row: places_of(state, row) for row in sorted(found - {-1})}


def size_of(places: Places) -> int:
    """GPUs of a place."""
    return sum(gpus for _, gpus, _ in places)


def memory_gib(state: State, terms: Terms | None, row: int, view: View) -> float:
    """GiB per GPU of a job on these terms; as it is now where there are none."""
    together = view.facts.together
    if terms is None or together is None:
        return float(state.f[row, col.GPU_GIB])
    level = int(state.i[row, col.LEVEL]) if state.i[row, col.STATE] == col.RUNNING else terms.level
    need_gib = float(together.memory_gib[state.i[row, col.SPEED_ROW], level])
    if together.soft is not None:  # what it is granted beyond its least is worked out when all have their places
        return need_gib * float(together.soft.least[state.i[row, col.SPEED_ROW]])
    return need_gib * terms.cap


def _with_masks(slices: Slices | Places) -> Places:
    return tuple((int(piece[0]), int(piece[1]), int(piece[2]) if len(piece) > 2 else 0) for piece in slices)


def _about_gangs(state: State, wanted: Wanted, view: View) -> str:
    """Only active jobs, gangs whole, on nodes that are there, up and open to them."""
    active = set(view.rows.tolist())
    for row, places in wanted.items():
        slices = tuple((node, gpus) for node, gpus, _ in places)
        wrong = f"row {row}, which is not active" if row not in active else _misplaced(state, view, row, slices)
        if wrong:
            return f"runs job {wrong}"
        for node, gpus in slices:
            if gpus > state.node[node, col.NODE_CAP] and (node, gpus) not in view.placement(row):  # it may be kept
                return f"puts {gpus} GPUs on node {node}, which has too few"
    return ""


def _misplaced(state: State, view: View, row: int, slices: Slices) -> str:
    """What is wrong with the place of one gang, if anything is."""
    c = state.i[row, col.CLASS]
    size, elastic = sum(count for _, count in slices), view.facts.elastic
    whole = size == state.i[row, col.GPUS]
    if not whole and elastic is not None and elastic[row] and size > 0:
        (fewest,), (most,) = view.size_limits(np.array([row]))
        if not fewest <= size <= most:
            return f"row {row} on {size} GPUs, though it takes {fewest} to {most}"
        whole = True
    if not whole or any(count < 1 for _, count in slices):
        return f"row {row} as a broken gang {slices}"
    for node, count in slices:
        if not 0 <= node < len(state.node):
            return f"row {row} with {count} GPUs on node {node}, which is not there"
    pools = {int(state.node[node, col.NODE_POOL]) for node, _ in slices}
    if len(pools) > 1:
        return f"row {row} on {slices}, over several GPU types or partitions"
    mine = int(state.cls[c, col.C_POOLS])
    if state.i[row, col.STATE] == col.RUNNING:  # it may stay where it is, also with other sizes than it asked for
        mine |= sum(1 << pool for pool in {int(state.node[node, col.NODE_POOL]) for node, _ in view.placement(row)})
    if not mine >> pools.pop() & 1:
        return f"row {row} on {slices}, where it cannot run (GPU type, partition or size)"
    nodes = int(state.cls[c, col.C_NODES])
    if nodes and (len(slices) != nodes or len({count for _, count in slices}) > 1):
        return f"row {row} on {slices}, not in equal parts on {nodes} nodes"
    return ""


def _about_nodes(state: State, wanted: Wanted) -> str:
    """GPUs per node, where every GPU has one job."""
    over = over_nodes(state, wanted)
    return next((f"puts {gpus} GPUs on node {node}, which has too few" for node, gpus in over.items()), "")


def over_nodes(state: State, wanted: Wanted) -> dict[int, int]:
    """Nodes on which more GPUs are to be had than there are, and how many."""
    used: dict[int, int] = {}
    for places in wanted.values():
        for node, gpus, _ in places:
            used[node] = used.get(node, 0) + gpus
    return {node: gpus for node, gpus in used.items() if gpus > state.node[node, col.NODE_CAP]}


def _resolve(state: State, wanted: Wanted, taken: dict[int, int]) -> str:
    """Masks for slices that have none: those of a job that stays, else GPUs of the node that nobody is planned for.

    Of these rather such as are free now and to which no suspended job is bound, then the first ones. `taken` are masks
    by node that others keep.
    """
    for row, places in wanted.items():
        if state.i[row, col.STATE] == col.RUNNING and not any(mask for _, _, mask in places):
            now = places_of(state, row)
            if sorted(piece[:2] for piece in now) == sorted(piece[:2] for piece in places):
                wanted[row] = now
    for places in wanted.values():
        for node, gpus, mask in places:
            if mask:
                if mask.bit_count() != gpus or mask >> int(state.node[node, col.NODE_SIZE]):
                    return f"has mask {mask:b}, which does not name {gpus} GPUs of node {node}"
                taken[node] = taken.get(node, 0) | mask
    for row, places in wanted.items():
        pieces = []
        for node, gpus, given in places:
            mask = given
            if not mask:
                mask = sum(1 << k for k in _open(state, node, taken.get(node, 0))[:gpus])
                if mask.bit_count() != gpus:
                    return f"wants {gpus} unused GPUs on node {node}, which has fewer"
                taken[node] = taken.get(node, 0) | mask
            pieces.append((node, gpus, mask))
        wanted[row] = tuple(pieces)
    return ""


def _open(state: State, node: int, taken: int) -> list[int]:
    """GPUs of a node that nobody is planned for, the best to take first."""
    first = int(state.gpu_first[node])
    free = [k for k in range(int(state.node[node, col.NODE_SIZE])) if not (taken >> k) & 1]
    if not state.x[col.LAGS] and not state.x[col.PINS]:
        return free
    pinned = (int(state.gpu[first + k, 0]) for k in free)
    free = [k for k, row in zip(free, pinned, strict=True) if row < 0 or state.i[row, col.STATE] != col.PINNED]
    return sorted(free, key=lambda k: (state.gpu_leaving[first + k] > 0, state.gpu_bound[first + k] > 0, k))


def _about_gpus(state: State, wanted: Wanted, plan: Plan, view: View) -> str:
    """Jobs and memory per GPU, where they are shared."""
    users: dict[tuple[int, int], int] = {}
    needs = {row: memory_gib(state, plan.terms.get(row), row, view) for row in wanted}
    memory: dict[tuple[int, int], dict[int, float]] = {}
    for row, places in wanted.items():
        terms = plan.terms.get(row)
        need = needs[row]
        turn = int(state.i[row, col.TURN]) if terms is None else terms.turn
        for node, _, mask in places:
            left = mask
            while left:
                place = node, (left & -left).bit_length() - 1
                left &= left - 1
                users[place] = users.get(place, 0) + 1
                turns = memory.setdefault(place, {})
                turns[turn] = turns.get(turn, 0.0) + need
    for (node, gpu), count in users.items():
        if count > state.gpu.shape[1]:
            return f"puts {count} jobs on GPU {gpu} of node {node}; {state.gpu.shape[1]} is most"
    limits = state.gpu_gib[state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE]].tolist()
    for (node, gpu), turns in memory.items():
        gib = turns.pop(0, 0.0) + max(turns.values(), default=0.0)  # a suspended job has left the GPU
        if gib > limits[node] + _SLACK:
            return f"needs {gib:.1f} GiB on GPU {gpu} of node {node}, which has {limits[node]:.1f}"
    return about_slices(state, wanted, plan, view, needs)


def _about_hosts(state: State, wanted: Wanted) -> str:
    """Cores and memory of the nodes, where they can bind."""
    used, over = on_hosts(state, wanted)
    for node in np.flatnonzero(over.any(axis=1)).tolist():
        if over[node, 0]:
            return f"puts {used[node, 0]:g} cores on node {node}, which has too few"
        return f"puts {used[node, 1]:g} GiB on node {node}, which has too little"
    return ""


def on_hosts(state: State, wanted: Wanted) -> tuple[Matrix, NDArray[np.bool_]]:
    """Cores and memory that are to be had on each node, and whether that is more than there is."""
    used = np.zeros((len(state.node), 2))
    for row, places in wanted.items() if state.x[col.USE_HOST] else ():
        each = state.f[row, [col.CPUS, col.MEM]] / max(int(state.i[row, col.GPUS]), 1)  # a plan may change its size
        for node, gpus, _ in places:
            used[node] += gpus * each
    return used, used > state.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]] + _SLACK


def _about_quotas(state: State, wanted: Wanted, plan: Plan) -> str:
    """Tenants within their quotas."""
    return _over_quota(state, held_by(state, wanted, plan))


def held_by(state: State, wanted: Wanted, plan: Plan) -> Ints:
    """GPUs that each tenant is to hold; jobs outside of any quota do not count."""
    held = pinned_gpus(state)
    for row, places in wanted.items():
        if not _is_opportunistic(state, plan.terms.get(row), row):
            held[state.i[row, col.TENANT]] += size_of(places)
    return held


def _over_quota(state: State, held: Ints) -> str:
    over = np.flatnonzero(held > state.quota[:, col.Q_LIMIT]).tolist()
    limit = state.quota[over, col.Q_LIMIT].tolist()
    return f"gives tenant {over[0]} {held[over[0]]} GPUs, over its quota of {limit[0]}" if over else ""


def _is_opportunistic(state: State, terms: Terms | None, row: int) -> bool:
    """Whether a job will not count against its tenant's quota; as it is now where there are no terms."""
    if terms is not None:
        return terms.opportunistic
    return bool(state.i[row, col.STATE] == col.RUNNING and state.i[row, col.OPPORTUNISTIC])


@kernel
def mark_named(i: IntMatrix, rows: Ints, mark: Ints) -> bool:
    """Mark active jobs that are named once; nothing is marked when that does not hold."""
    good = len(rows)
    for k in range(len(rows)):
        job = rows[k]
        if mark[job] != 0 or (i[job, STATE] != WAITING and i[job, STATE] != RUNNING):
            good = k
            break
        mark[job] = 1
    if good == len(rows):
        return True
    for k in range(good):
        mark[rows[k]] = 0
    return False
