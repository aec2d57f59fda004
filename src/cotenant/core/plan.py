"""The whole target state that a policy asks for: which jobs run next, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cotenant.core.state import Matrix
from cotenant.core.workload import Ints

Slices = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Row of every job that should run -> its (node, GPUs) pairs. Whoever is missing does not run."""

    run: dict[int, Slices] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Who runs next and in which pool; the engine finds the places. Whoever is missing does not run.

    `hosts` names, for a guest that shares GPUs, the row of its host, else -1; guests come after their hosts.
    `next_s` is when to ask again if nothing happens before.
    """

    rows: Ints
    pools: Ints
    hosts: Ints
    next_s: float = np.inf


@dataclass(frozen=True, slots=True)
class Standing:
    """Where jobs stand with a policy of rounds: jobs x pools, fractions of time since `since_s`.

    `known` says who takes part; whoever came later does from `next_s` on, when the next round begins.
    """

    known: NDArray[np.bool_]
    target: Matrix
    received: Matrix
    since_s: float
    next_s: float
