"""A policy between decisions: the object with all it remembers, and where it said that jobs stand.

One decision at a time touches the policy (`Budget` sees to that). What others read of it (`Standings`) is made once
after a decision and never changed. Nothing of this is journaled: after a restart of the service its history begins
anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.plan import Standing
from cotenant.core.reasons import Cause, Reason
from cotenant.core.workload import Floats, Ints
from cotenant.policies import Context, make_policy
from cotenant.policies.base import ChoicePolicy, OrderPolicy, PlanPolicy, Policy
from cotenant.service.planner.sharing import MOST_GPUS

_LEAST_SHOWN = 0.005


def shares(policy: Policy) -> bool:
    """Whether a policy may put several jobs on one GPU."""
    return isinstance(policy, ChoicePolicy | PlanPolicy) and policy.shares


def names_gpus(policy: Policy) -> bool:
    """Whether a policy says on which GPUs exactly a job sits, not only on how many of which node."""
    return isinstance(policy, PlanPolicy) and policy.shares


def check_nodes(policy: Policy, name: str, nodes: Iterable[NodeInfo]) -> None:
    """Raise where a policy tells GPUs apart that cannot be told apart."""
    large = [node for node in nodes if node.gpus > MOST_GPUS]
    if names_gpus(policy) and large:
        raise InputError(
            f"policy '{name}' tells GPUs apart: that takes nodes of at most {MOST_GPUS} GPUs, "
            f"and {large[0].name} has {large[0].gpus}"
        )


class Memory:
    """The policy of that name on a cluster of these GPU types; another name or other types need another one."""

    def __init__(self, name: str, types: tuple[str, ...], context: Context) -> None:
        self.name, self.types = name, types
        self.policy = make_policy(name)
        self.rule = self.policy.rule(context)
        self._gpus: tuple[int, ...] | None = None
        self._ident: Ints = np.zeros(0, np.int64)

    @property
    def chooses(self) -> bool:
        """Whether it says who runs, and when it wants to be asked again; others only say who comes first."""
        return isinstance(self.policy, ChoicePolicy | PlanPolicy)

    @property
    def names_gpus(self) -> bool:
        """Whether it says on which GPUs exactly."""
        return names_gpus(self.policy)

    @property
    def shares(self) -> bool:
        """Whether it may put several jobs on one GPU."""
        return shares(self.policy)

    @property
    def resizes(self) -> bool:
        """Whether it gives elastic jobs other numbers of GPUs than they asked for."""
        return isinstance(self.policy, PlanPolicy) and self.policy.resizes

    @property
    def undoes(self) -> bool:
        """Whether it parts, or holds back, jobs that do not gain from sharing by itself."""
        return isinstance(self.policy, PlanPolicy) and self.policy.undoes

    @property
    def takes_turns(self) -> bool:
        """Whether jobs on one GPU may have it one after the other."""
        return isinstance(self.policy, PlanPolicy) and self.policy.takes_turns

    @property
    def quantum_s(self) -> float:
        """How long a job keeps its GPUs before the next one has its turn."""
        return self.policy.quantum_s if isinstance(self.policy, PlanPolicy) else np.inf

    @property
    def remembers(self) -> bool:
        """Whether the object is worth keeping: orders are data and are made anew from the jobs of the moment."""
        return not isinstance(self.policy, OrderPolicy)

    def notice(self, gpus: tuple[int, ...], ident: Ints) -> None:
        """Tell it what is different from its last decision: other GPUs, or jobs in other rows (`ident` by row)."""
        if isinstance(self.policy, ChoicePolicy) and self._gpus not in (None, gpus):
            self.policy.refresh()
        if isinstance(self.policy, ChoicePolicy | PlanPolicy):
            at = dict(zip(ident.tolist(), range(len(ident)), strict=True))
            old = enumerate(self._ident.tolist())
            self.policy.renumber({row: at[number] for row, number in old if number in at})
        self._gpus, self._ident = gpus, ident


@dataclass(frozen=True, slots=True)
class Standings:
    """Where every job stood with a policy of rounds after its last decision."""

    ids: NDArray[np.object_]
    gpus: Ints
    able: NDArray[np.bool_]  # whether there is a pool that could hold it
    types: tuple[str, ...]
    standing: Standing

    def reason(self, job: str, now_s: float) -> Reason | None:
        """Why a job waits; None for one that the last decision did not know."""
        found = np.flatnonzero(self.ids == job)
        if not len(found):
            return None
        at, part = int(found[0]), self.standing
        need = int(self.gpus[at])
        wait_s = max(part.next_s - now_s, 0.0)
        soon = f"next round in {wait_s:.0f} s" if np.isfinite(wait_s) else "next round when jobs come or go"
        if not self.able[at]:
            text = f"it asks for {need} GPUs; no pool in which it can run has that many that may be given away now"
            return Reason(job, now_s, Cause.EXCEEDS_CLUSTER, text, need)
        if not part.known[at]:
            text = f"it came after the last round began and no GPUs are idle; {soon}"
        elif not (part.target[at] >= _LEAST_SHOWN).any():
            text = f"the policy has no time for it while the present jobs are there; {soon}"
        else:
            clock = time.strftime("%H:%M:%S", time.localtime(part.since_s))
            text = f"{self._fractions(part.target[at], part.received[at])} since {clock}; {soon}"
        waiting = len(self.ids)
        return Reason(job, now_s, Cause.BEHIND_HEAD, text, need, waiting=waiting)

    def _fractions(self, target: Floats, received: Floats) -> str:
        shown = [k for k in range(len(target)) if target[k] >= _LEAST_SHOWN or received[k] >= _LEAST_SHOWN]
        wanted = ", ".join(f"{target[k]:.2f} of {self.types[k]}" for k in shown)
        return f"target {wanted}; received {', '.join(f'{received[k]:.2f}' for k in shown)}"
