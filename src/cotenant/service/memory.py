"""A policy between decisions: the object with all it remembers.

One decision at a time touches the policy (`Budget` sees to that). Nothing of this is journaled: after a restart of the
service its history begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.traits import Traits
from cotenant.core.workload import Ints
from cotenant.policies import Context, make_policy
from cotenant.service.sharing import MOST_GPUS


def check_nodes(traits: Traits, name: str, nodes: Iterable[NodeInfo]) -> None:
    """Raise where a policy tells GPUs apart that cannot be told apart."""
    large = [node for node in nodes if node.gpus > MOST_GPUS]
    if traits.names_gpus and large:
        raise InputError(
            f"policy '{name}' tells GPUs apart: that takes nodes of at most {MOST_GPUS} GPUs, "
            f"and {large[0].name} has {large[0].gpus}"
        )


class Memory:
    """The policy of that name on a cluster of these GPU types; another name or other types need another one."""

    def __init__(self, name: str, types: tuple[str, ...], context: Context) -> None:
        self.name, self.types = name, types
        self.policy = make_policy(name)
        self.policy.begin(context)
        self.traits, self.rule = self.policy.traits, self.policy.rule(context)
        self._gpus: tuple[int, ...] | None = None
        self._ident: Ints = np.zeros(0, np.int64)

    @property
    def remembers(self) -> bool:
        """Whether the object is worth keeping: orders that are data are made anew from the jobs of the moment."""
        return self.traits.plans or self.traits.computed

    def notice(self, gpus: tuple[int, ...], ident: Ints) -> None:
        """Tell it what is different from its last decision: other GPUs, or jobs in other rows (`ident` by row)."""
        if self._gpus not in (None, gpus):
            self.policy.refresh()
        if self.traits.plans:
            at = dict(zip(ident.tolist(), range(len(ident)), strict=True))
            old = enumerate(self._ident.tolist())
            self.policy.renumber({row: at[number] for row, number in old if number in at})
        self._gpus, self._ident = gpus, ident
