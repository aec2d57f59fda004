"""The whole target state that a policy asks for: which jobs run next, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cotenant.core.state import Matrix
from cotenant.core.workload import Ints

Slices = tuple[tuple[int, int], ...]
Places = tuple[tuple[int, int, int], ...]
"""(node, GPUs, mask of the node's GPUs): which GPUs exactly, where several jobs may share one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a job shares GPUs.

    It cuts its steps into 2**`level` sub-batches (set when it starts, kept while it runs), may use `share` of the
    time of its GPUs, and may keep `cap` of the memory it needs on them. Jobs of different `turn` run one after the
    other instead of side by side, and `share` is then the part of the time that is theirs; 0 takes no turns. An
    `opportunistic` job does not count against the quota of its tenant.
    """

    level: int = 0
    share: float = 1.0
    cap: float = 1.0
    turn: int = 0
    opportunistic: bool = False


ALONE = Terms()


@dataclass(frozen=True, slots=True)
class Plan:
    """Row of every job that should run -> its (node, GPUs) pairs. Whoever is missing does not run.

    Where GPUs are shared a pair may have a third number, the mask of the GPUs meant; without it the first GPUs
    that nobody uses are taken. With `keep` whoever runs and is not named goes on as it is, unless it is in `stop`.
    `next_s` is when to ask again if nothing happens before. Jobs that may change their size run on as many GPUs as
    their pairs have; `pause_s` is what that costs a running one.
    """

    run: Mapping[int, Slices | Places] = field(default_factory=dict)
    terms: Mapping[int, Terms] = field(default_factory=dict)
    keep: bool = False
    stop: frozenset[int] = frozenset()
    next_s: float = np.inf
    pause_s: Mapping[int, float] = field(default_factory=dict)


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
