"""The whole target state that a policy asks for: which jobs run next, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cotenant.core.workload import Ints

Slices = tuple[tuple[int, int], ...]
Places = tuple[tuple[int, int, int], ...]
"""(node, GPUs, mask of the node's GPUs): which GPUs exactly, where several jobs may share one."""

Why = Callable[[int], str]
"""Row of a job that a plan does not run -> why, in the words of the policy; empty where it has none.

Others are named by their rows: `row 7` becomes the name of that job.
"""


def nothing_said(row: int) -> str:
    """A plan without reasons."""
    return ""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a job shares GPUs.

    It cuts its steps into 2**`level` sub-batches (set when it starts, kept while it runs), may use `share` of the
    time of its GPUs, and may keep `cap` of the memory it needs on them. Jobs of different `turn` run one after the
    other instead of side by side, and `share` is then the part of the time that is theirs; 0 takes no turns. An
    `opportunistic` job does not count against the quota of its tenant. `sliced` is the number of a shape, from 1, in
    the table of its GPU (`core.partitions`), and `column` where such a slice begins; 0: it has the GPU as a whole.
    """

    level: int = 0
    share: float = 1.0
    cap: float = 1.0
    turn: int = 0
    opportunistic: bool = False
    sliced: int = 0
    column: int = 0

    @property
    def cut(self) -> tuple[int, int]:
        """Its slice: shape and column."""
        return self.sliced, self.column


ALONE = Terms()


@dataclass(frozen=True, slots=True)
class Pools:
    """Who runs in which pool (one GPU type of one partition), in step; the engine finds the places.

    Whoever is chosen for the pool in which it runs keeps its GPUs. `hosts` names, for a guest that shares GPUs, the row
    of its host, else -1.
    """

    rows: Ints
    pools: Ints
    hosts: Ints


@dataclass(frozen=True, slots=True)
class Plan:
    """Row of every job that should run -> its (node, GPUs) pairs. Whoever is missing does not run.

    Where GPUs are shared a pair may have a third number, the mask of the GPUs meant; without it the first GPUs
    that nobody uses are taken. With `keep` whoever runs and is not named goes on as it is, unless it is in `stop`.
    `next_s` is when to ask again if nothing happens before. Jobs that may change their size run on as many GPUs as
    their pairs have; `pause_s` is what that costs a running one. A plan may name `pools` instead of places. `why`
    answers for the jobs that it does not run, when somebody asks; what it looks at must not change any more. `lines`
    are groups on the same GPUs whose stages take turns at each resource, in this order. Before `idle_until_s` nobody
    need ask: whoever runs goes on, GPUs that are idle go to jobs that wait, oldest first, each in its fastest pool with
    room (`View.given` says it afterwards), and from then on the policy is asked. Before `same_until_s`, and while
    nobody comes or goes, its next plans would be this one again: nobody need ask, and `given` says when they were due.
    """

    run: Mapping[int, Slices | Places] = field(default_factory=dict)
    terms: Mapping[int, Terms] = field(default_factory=dict)
    keep: bool = False
    stop: frozenset[int] = frozenset()
    next_s: float = np.inf
    pause_s: Mapping[int, float] = field(default_factory=dict)
    pools: Pools | None = None
    why: Why = nothing_said
    lines: tuple[tuple[int, ...], ...] = ()
    idle_until_s: float = -np.inf
    same_until_s: float = -np.inf
