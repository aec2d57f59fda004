"""The rules that hold after every decision, as code. Always on in tests; one flag elsewhere."""

from __future__ import annotations

import itertools

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InvariantError
from cotenant.core.state import State
from cotenant.core.workload import Ints
from cotenant.engine.observe import walk_slices


def check(state: State) -> None:
    """Raise `InvariantError` at the first rule that is broken."""
    node, i, f, x = state.node, state.i, state.f, state.x
    used = np.zeros(len(node), np.int64)
    cpus, mem = np.zeros(len(node)), np.zeros(len(node))
    tenant_used = np.zeros(len(state.quota), np.int64)
    states = i[:, col.STATE]
    running = np.flatnonzero(states == col.RUNNING)
    pinned = np.flatnonzero(states == col.PINNED)
    listed = sorted(int(job) for job in state.run[: x[col.N_RUN]] if job >= 0)
    _require(listed == running.tolist(), "the list of running jobs is not the jobs that run")
    for job in np.concatenate([running, pinned]):
        gpus, pools, parts = 0, set(), []
        for n, count, mask in walk_slices(state, int(i[job, col.SLICE])):
            used[n] += 0 if x[col.SHARING] else count
            if x[col.SHARING]:
                _require(mask.bit_count() == count, f"job {job} has {count} GPUs on node {n}, its mask {mask:b}")
            gpus += count
            parts.append(count)
            pools.add(int(node[n, col.NODE_POOL]))
            share = count / i[job, col.GPUS]
            cpus[n] += share * f[job, col.CPUS]
            mem[n] += share * f[job, col.MEM]
        _require(gpus == i[job, col.GPUS], f"job {job} holds {gpus} of {i[job, col.GPUS]} GPUs: gang not whole")
        _require(len(pools) == 1, f"job {job} spans pools {pools}")
        mask = state.cls[i[job, col.CLASS], col.C_POOLS]
        _require(bool((mask >> pools.pop()) & 1), f"job {job} runs in a pool it may not use")
        asked = state.cls[i[job, col.CLASS], col.C_NODES]
        _require(asked in (0, len(parts)) and (asked == 0 or len(set(parts)) == 1), f"job {job} is split as {parts}")
        tenant_used[i[job, col.TENANT]] += 0 if i[job, col.OPPORTUNISTIC] else gpus
    pinned = pinned[i[pinned, col.LETS_IN] == 0]
    if x[col.SHARING]:
        used = _used_when_shared(state, np.concatenate([running, pinned]))
    shut = _shut_gpus(state, pinned) if len(pinned) or node[:, col.NODE_SHUT].any() else np.zeros(len(node), np.int64)
    free = np.where(node[:, col.NODE_SHUT] == 1, 0, node[:, col.NODE_CAP] - (used - shut))
    _require(bool((free >= 0).all()), "a node gives more GPUs than it has")
    _require(bool((free == node[:, col.NODE_FREE]).all()), "free GPUs are not capacity minus use")
    _require(int(free.sum()) == x[col.IDLE], "idle GPUs do not add up")
    _require(int(used.sum()) == x[col.N_BUSY], "busy GPUs do not add up")
    if x[col.USE_HOST]:
        _require(bool((cpus <= state.host[:, col.HOST_CPU_CAP] + 1e-6).all()), "a node gives too many cores")
        _require(bool((mem <= state.host[:, col.HOST_MEM_CAP] + 1e-6).all()), "a node gives too much memory")
    _require(bool((tenant_used == state.quota[:, col.Q_USED]).all()), "GPUs per tenant do not add up")
    _require(bool((tenant_used <= state.quota[:, col.Q_LIMIT]).all()), "a tenant is over its quota")
    if x[col.TENANTS]:
        _check_tenants(state, np.flatnonzero(np.isin(states, (col.RUNNING, col.PINNED))))
    waiting = int((i[:, col.STATE] == col.WAITING).sum())
    _require(waiting == x[col.N_WAITING] == int(state.cls[:, col.C_LEN].sum()), "waiting jobs do not add up")
    _require(int((i[:, col.STATE] == col.ASIDE).sum()) == x[col.N_ASIDE], "jobs set aside do not add up")
    _require(len(running) == x[col.N_RUNNING], "running jobs do not add up")
    _require(int(i[running, col.PROMISED].sum()) == x[col.N_PROMISED], "promises do not add up")
    if x[col.LAGS]:
        _check_cells(state, col.OLD, state.gpu_leaving, "GPUs that are still held")
        _check_cells(state, col.HOME, state.gpu_bound, "GPUs to which suspended jobs are bound")
    _require(bool((f[:, col.DONE] <= f[:, col.WORK] + 1e-6).all()), "a job did more work than it has")
    ended = i[:, col.STATE] == col.FINISHED
    lasted = f[ended, col.FINISH] - f[ended, col.SUBMIT]
    spent = f[ended, col.WAITED] + f[ended, col.OCCUPIED]
    _require(bool(np.allclose(lasted, spent, rtol=1e-9, atol=1e-3)), "time of a job is not waiting plus running")


def _check_tenants(state: State, holders: Ints) -> None:
    """What the tree is told agrees with the jobs, and nobody holds more than it and those above it ever may."""
    held, rows = np.zeros_like(state.asked.running), state.rows
    for job in holders.tolist():
        leaf = state.cls[state.i[job, col.CLASS], col.C_LEAF]
        pool = state.node[state.slices[state.i[job, col.SLICE], col.SLICE_NODE], col.NODE_POOL]
        place = len(state.pool) if state.i[job, col.STATE] == col.PINNED else pool
        held[leaf, place] += state.i[job, col.GPUS]
    _require(bool((held == state.asked.running).all()), "GPUs per row of the tree of tenants do not add up")
    if state.x[col.TENANTS] == 2 or state.x[col.NEW_TREE]:  # the policy sees to it; or the tree is not obeyed yet
        return
    use = held[:, :-1].sum(axis=1)  # but for what nobody may stop
    for n in range(len(use) - 1, 0, -1):
        _require(bool(use[n] <= rows.most[n]), f"row {n} of the tree of tenants holds {use[n]} of {rows.most[n]} GPUs")
        use[rows.parent[n]] += use[n]


def _shut_gpus(state: State, pinned: Ints) -> Ints:
    """GPUs per open node that pinned jobs have."""
    found = np.zeros(len(state.node), np.int64)
    mine = set(pinned.tolist())
    for n, (first, end) in enumerate(itertools.pairwise(state.gpu_first.tolist())):
        if not state.node[n, col.NODE_SHUT]:
            found[n] = sum(bool(mine & set(jobs)) for jobs in state.gpu[first:end].tolist())
    return found


def _check_cells(state: State, column: int, cells: Ints, what: str) -> None:
    """The counts per GPU agree with the lists of the jobs."""
    expected = np.zeros(len(cells), np.int64)
    for head in state.i[state.i[:, column] >= 0, column].tolist():
        for n, _, mask in walk_slices(state, head):
            for k in range(int(state.node[n, col.NODE_SIZE])):
                expected[int(state.gpu_first[n]) + k] += (mask >> k) & 1
    _require(bool((expected == cells).all()), f"{what} do not add up")


def _used_when_shared(state: State, running: Ints) -> Ints:
    """Busy GPUs per node; the table of who uses which GPU must agree with the masks of the jobs."""
    expected: list[set[int]] = [set() for _ in range(len(state.gpu))]
    for job in running.tolist():
        for n, _, mask in walk_slices(state, int(state.i[job, col.SLICE])):
            for g in range(int(state.gpu_first[n]), int(state.gpu_first[n + 1])):
                if (mask >> (g - int(state.gpu_first[n]))) & 1:
                    expected[g].add(job)
    for g, jobs in enumerate(state.gpu.tolist()):
        _require({job for job in jobs if job >= 0} == expected[g], f"GPU {g} is used by others than it says")
    kinds = state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE]
    i_turn = state.i[:, col.TURN]
    limit = np.repeat(state.gpu_gib[kinds], np.diff(state.gpu_first))
    for g, company in enumerate(expected):
        _require(len(company) <= state.gpu.shape[1], f"GPU {g} is shared by {len(company)} jobs")
        turns: dict[int, float] = {0: 0.0}
        for job in company if len(company) > 1 else ():
            turn = int(i_turn[job])
            turns[turn] = turns.get(turn, 0.0) + float(state.f[job, col.GPU_GIB])
        need = turns.pop(0) + max(turns.values(), default=0.0)
        _require(need <= limit[g] + 1e-6, f"GPU {g} has {limit[g]:g} GiB, its jobs need {need:g}")
    busy = np.array([bool(jobs) for jobs in expected], np.int64)
    return np.array([busy[a:b].sum() for a, b in itertools.pairwise(state.gpu_first.tolist())], np.int64)


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise InvariantError(text)
