"""From an experiment to an allocation: truth and belief about cores and memory, demands per pool, habits to follow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cotenant.compat import Compat
from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity, insensitive
from cotenant.core.state import State
from cotenant.core.traits import Traits
from cotenant.core.workload import Floats, Workload
from cotenant.engine.tenant_rows import pools_of
from cotenant.sim.experiment import Experiment
from cotenant.workload.profiles import Profile

if TYPE_CHECKING:  # what most runs do without is loaded where it is used
    from cotenant.allocation import Share
    from cotenant.allocation.allocate import Allocation

PLAIN = ("fixed", "proportional")
"""Allocators that need nothing of this where a profile says nothing about cores and memory."""


def is_allocated(e: Experiment, profile: Profile) -> bool:
    """Whether cores and memory are scheduled in this run, rather than only counted."""
    return e.allocator not in PLAIN or profile.sensitivity is not None or _borrows(e)


def _borrows(e: Experiment) -> bool:
    """Whether nodes may use memory of their peers: who has how much of it is then worked out as jobs are packed."""
    return any(group.borrow_gib > 0 for group in e.cluster.groups)


def make_allocation(e: Experiment, work: Workload, state: State, profile: Profile, traits: Traits) -> Allocation:
    """The allocator of an experiment on its tables."""
    from cotenant.allocation import demands, make_allocator, released_demands
    from cotenant.allocation.allocate import Allocation, Host, check_policy
    from cotenant.beliefs.profiling import optimistic

    packer, allocator = Compat(e.compat).packer(), make_allocator(e.allocator)
    check_policy(traits, allocator.name)
    if traits.shares:
        raise InputError(f"allocator '{allocator.name}' and policy '{e.policy}': jobs that share a GPU are not packed")
    sensitivity = profile.sensitivity
    if sensitivity is None and _borrows(e) and allocator.name in PLAIN:
        sensitivity = _indifferent(len(profile.kinds), work)
    if sensitivity is None:
        raise InputError(
            f"--allocator {e.allocator}: profile '{e.profile}' does not say how speed depends on cores and memory; "
            "use --profile h200-loader or a file of such profiles"
        )
    if not np.isfinite(state.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]).any():
        raise InputError(f"--allocator {e.allocator}: cluster '{e.cluster.spec}' gives neither cpu= nor mem=")
    truth = sensitivity
    if packer is not None:
        packer.set_up(allocator)
    belief, profiling_s = truth, np.zeros(len(work))
    if allocator.params["profiling"] == "optimistic":
        guess = optimistic(truth, seed=e.seed, noise=allocator.number("noise"))
        belief, profiling_s = guess.belief, guess.cost_s[profile.row]
    gangs = np.array([gpus for _, gpus in profile.kinds], np.int64)
    lend = _lent(e) if _borrows(e) else None
    shares = pool_shares(state, truth, lend)
    ask = partial(demands, saturate=allocator.number("saturate")) if packer is None else released_demands
    host = Host(
        truth=truth,
        demands=tuple(ask(belief, gangs, share) for share in shares),
        shares=shares,
        gangs=gangs,
        asked=_asked(work),
        profiling_s=profiling_s,
        lend=lend,
    )
    if packer is None:
        return Allocation(state, allocator, host)
    return packer.allocation(state, allocator, host, work, truth.step_s[profile.row])


def _indifferent(kinds: int, work: Workload) -> Sensitivity:
    """Jobs that are as fast with any cores and memory; what they ask for is all that counts."""
    most = [float(np.nan_to_num(np.nanmax(np.append(column, 1.0)))) for column in _asked(work).T]
    return insensitive(kinds, *(np.array([1e-9, amount]) for amount in most))


def _lent(e: Experiment) -> Floats:
    """Nodes x (GiB that each may borrow, speed of what works there), in the order of the tables."""
    if e.placement.split(":")[0] == "count":
        raise InputError(f"cluster '{e.cluster.spec}' borrows memory node by node: use --placement consolidated")
    groups = [
        group
        for part, kind, owners in pools_of(e.cluster)
        for group in e.cluster.groups
        if (group.partition, group.gpu_type, group.dedicated) == (part, kind, owners)
    ]
    rows = [(group.borrow_gib, group.borrow_factor) for group in groups for _ in range(group.count)]
    return np.array(rows, np.float64)


def pool_shares(state: State, sensitivity: Sensitivity, lend: Floats | None = None) -> tuple[Share, ...]:
    """The smallest server of each pool by what it can give a GPU; what is not modelled is as much as anybody uses."""
    from cotenant.allocation import Share

    shares = []
    for lo, hi in state.pool[:, [col.POOL_LO, col.POOL_HI]].tolist():
        size = state.node[lo:hi, col.NODE_SIZE].astype(np.float64)
        each = []
        for place, most in ((col.HOST_CPU_CAP, sensitivity.cpu_axis[-1]), (col.HOST_MEM_CAP, sensitivity.mem_axis[-1])):
            lent = 0.0 if lend is None or place != col.HOST_MEM_CAP else lend[lo:hi, 0]
            ratio = (state.host[lo:hi, place] - lent) / size
            each.append(float(np.where(np.isfinite(ratio), ratio, most).min()))
        gpus = float(size.max())
        most_lent = 0.0 if lend is None else float(lend[lo:hi, 0].max())
        shares.append(Share(gpus, each[0] * gpus, each[1] * gpus, most_lent))
    return tuple(shares)


def _asked(work: Workload) -> Floats:
    return np.stack([work.cpus / work.gpus, work.mem_gib / work.gpus], axis=1)


def summary(allocation: Allocation, state: State, played_s: float) -> dict[str, float | int]:
    """What the cores and memory came to."""
    cap = allocation.capacity(state).sum(axis=0)
    spent = allocation.spent
    return {
        "cpu_utilization": spent.cpu_s / (cap[1] * played_s) if played_s > 0 else 0.0,
        "mem_utilization": spent.mem_s / (cap[2] * played_s) if played_s > 0 else 0.0,
        "rounds": spent.rounds,
        "profiling_s": float(allocation.host.profiling_s.sum()),
    }
