"""From an experiment to an allocation: truth and belief about cores and memory, demands per pool, habits to follow."""

from __future__ import annotations

import numpy as np

from cotenant.allocation import Share, demands, make_allocator, released_demands
from cotenant.core import columns as col
from cotenant.core.compat import parse_compat
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.state import State
from cotenant.core.workload import Floats, Workload
from cotenant.engine.allocate import Allocation, Host, Released, check_policy
from cotenant.policies.base import ChoicePolicy, Policy
from cotenant.sim.experiment import Experiment
from cotenant.workload.profiles import Profile
from cotenant.workload.profiling import optimistic

PLAIN = ("fixed", "proportional")
"""Allocators that need nothing of this where a profile says nothing about cores and memory."""


def is_allocated(e: Experiment, profile: Profile) -> bool:
    """Whether cores and memory are scheduled in this run, rather than only counted."""
    return e.allocator not in PLAIN or profile.sensitivity is not None


def make_allocation(e: Experiment, work: Workload, state: State, profile: Profile, policy: Policy) -> Allocation:
    """The allocator of an experiment on its tables."""
    quirks = parse_compat(e.compat).get("synergy", {})
    allocator = make_allocator(e.allocator)
    check_policy(policy, allocator.name)
    if isinstance(policy, ChoicePolicy) and policy.shares:
        raise InputError(f"allocator '{allocator.name}' and policy '{e.policy}': jobs that share a GPU are not packed")
    if profile.sensitivity is None:
        raise InputError(
            f"--allocator {e.allocator}: profile '{e.profile}' does not say how speed depends on cores and memory; "
            "use --profile h200-loader or a file of Synergy's profiles"
        )
    if not np.isfinite(state.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]).any():
        raise InputError(f"--allocator {e.allocator}: cluster '{e.cluster.spec}' gives neither cpu= nor mem=")
    truth, released = profile.sensitivity, None
    if quirks.get("progress") == "whole_iterations":
        for name in ("order", "fit"):
            if name in allocator.params:
                allocator.params[name] = quirks[name]
        released = _released(quirks, work, truth, profile)
    belief, profiling_s = truth, np.zeros(len(work))
    if allocator.params["profiling"] == "optimistic":
        guess = optimistic(truth, seed=e.seed, noise=allocator.number("noise"))
        belief, profiling_s = guess.belief, guess.cost_s[profile.row]
    gangs = np.array([gpus for _, gpus in profile.kinds], np.int64)
    shares = pool_shares(state, truth)
    ask = released_demands if released is not None else demands
    extra = {} if released is not None else {"saturate": allocator.number("saturate")}
    host = Host(
        truth=truth,
        demands=tuple(ask(belief, gangs, share, **extra) for share in shares),
        shares=shares,
        gangs=gangs,
        asked=_asked(work),
        profiling_s=profiling_s,
    )
    return Allocation(state, allocator, host, released)


def pool_shares(state: State, sensitivity: Sensitivity) -> tuple[Share, ...]:
    """The smallest server of each pool by what it can give a GPU; what is not modelled is as much as anybody uses."""
    shares = []
    for lo, hi in state.pool[:, [col.POOL_LO, col.POOL_HI]].tolist():
        size = state.node[lo:hi, col.NODE_SIZE].astype(np.float64)
        each = []
        for place, most in ((col.HOST_CPU_CAP, sensitivity.cpu_axis[-1]), (col.HOST_MEM_CAP, sensitivity.mem_axis[-1])):
            ratio = state.host[lo:hi, place] / size
            each.append(float(np.where(np.isfinite(ratio), ratio, most).min()))
        gpus = float(size.max())
        shares.append(Share(gpus, each[0] * gpus, each[1] * gpus))
    return tuple(shares)


def _asked(work: Workload) -> Floats:
    return np.stack([work.cpus / work.gpus, work.mem_gib / work.gpus], axis=1)


def _released(quirks: dict[str, str], work: Workload, truth: Sensitivity, profile: Profile) -> Released:
    step_s = truth.step_s[profile.row]
    if np.isnan(step_s).any():
        model = work.model.names[work.model.code[int(np.argmax(np.isnan(step_s)))]]
        raise InputError(f"--compat synergy: the profile has no iteration time of model '{model}'")
    round_s = float(quirks["round_s"])
    first = float(np.ceil(work.submit_s[0] / round_s) * round_s) or 1.0
    return Released(round_s, float(quirks.get("first_round_s", first)), step_s)


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
