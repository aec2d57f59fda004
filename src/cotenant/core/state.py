"""The tables of the engine and the rule of a policy, as tuples of arrays that compiled code can take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.columns import BY_TIER, RULE_FLAGS, RULE_NUMBERS
from cotenant.core.native.types import columned
from cotenant.core.workload import Floats, Ints

Matrix = NDArray[np.float64]
IntMatrix = NDArray[np.int64]
Cube = NDArray[np.float64]
IntCube = NDArray[np.int64]


class State(NamedTuple):
    """Everything the engine knows. Columns are named in `cotenant.core.columns`."""

    f: Matrix  # jobs x float columns
    i: IntMatrix  # jobs x integer columns
    node: IntMatrix  # nodes x (capacity, free, pool, size)
    host: Matrix  # nodes x (cores, cores free, GiB, GiB free)
    pool: IntMatrix
    cls: IntMatrix
    slices: IntMatrix
    quota: IntMatrix  # tenants x (limit, used, guaranteed, claimed in this walk, ...)
    use: Matrix  # tenants x what they have used
    rows: Any  # the tree of tenants (`cotenant.tenancy.tree_tables.Rows`)
    asked: Any  # what its tenants hold and ask for (`cotenant.tenancy.filling.Asked`)
    claims: Any  # and what follows from it (`cotenant.tenancy.filling.Claims`)
    run: Ints  # running jobs, negative where one has left
    hot: Matrix  # what the walk needs of running jobs, side by side, in step with `run`
    keys: Matrix  # keys of running jobs at the present walk, in step with `run`; four rows where there are tiers
    heap: Ints  # one heap per class, side by side
    members: Ints  # jobs per class by row, in the layout of `heap`
    events: Ints  # heap of jobs by their next own event
    when: Floats  # its times, in step with them
    tree: Floats  # per class a tree of shortest believed durations, for backfill searches
    speed: Cube  # kind x GPU type x (consolidated, spread)
    gpu: IntMatrix  # GPUs x places: who uses each one, -1 for nobody; no rows unless GPUs are shared
    gpu_first: Ints  # first GPU of each node, and the end
    gpu_leaving: Ints  # jobs that still hold each GPU though it is no longer theirs
    gpu_bound: Ints  # suspended jobs that can go on only on this GPU
    gpu_gib: Floats  # GPU type -> GiB of memory of one GPU; infinity where nobody asks
    attempts: Matrix  # rows (DONE at which an attempt fails), in order, by `attempt_of`
    attempt_of: IntMatrix  # jobs x (first row, rows) of attempts
    x: Ints  # integer scalars
    t: Floats  # float scalars
    # Scratch of one walk.
    open: IntMatrix  # nodes x (GPUs nobody ahead has claimed, idle GPUs, usable now, idle when a tail leaves)
    open_host: Matrix  # nodes x (cores unclaimed, cores idle, GiB unclaimed, GiB idle)
    pick: IntMatrix  # (node, GPUs) of the placement just found
    order: IntMatrix  # running jobs lined up: their positions, they themselves, and the line as it is kept
    scratch: Floats
    stops: Ints
    starts: IntMatrix  # (job, first slice, moved, host)
    failed: Ints  # classes that did not fit in this walk
    lines: Ints  # classes in the order of their first waiting jobs
    moved: Ints  # those of which the first one is another since they were lined up
    series: Matrix
    segments: Matrix  # job, node, gpus, start, end
    # What orders keep from one decision to the next (`cotenant.engine.openings`, `cotenant.engine.behind`).
    seat: IntMatrix  # nodes x (how many jobs use it, and which)
    top: Matrix  # GPUs x nodes: who has a larger key opens no place there
    held: Matrix  # scratch: keys and GPUs of those on one node
    limit: Floats  # by slice: the key that `top` counts its job with on that node, -infinity if it does not
    stale: Ints  # nodes of which `top` no longer holds
    changed: Ints  # nodes whose limits were raised last, one after the other in a ring
    rest: Matrix  # by GPUs: a limit of all nodes but those that changed since, and how many had changed then
    shield: Ints  # running jobs that were in their minimum run when they were looked at last
    bare: Floats  # when that is over, in step with them
    log: IntMatrix  # transitions of the present step: kind, job, and 1 where a stop is part of a move
    # Where idle GPUs may be given away without asking (`cotenant.engine.giving`); else without rows.
    given: Matrix  # what was given since the last plan: when, to whom (-1: nobody), in which pool
    around: Ints  # active jobs by row


columned(
    State,
    f=col.FLOAT_COLUMNS,
    i=col.INT_COLUMNS,
    node=5,
    host=4,
    pool=6,
    cls=col.CLASS_COLUMNS,
    slices=4,
    quota=col.QUOTA_COLUMNS,
    use=col.USE_COLUMNS,
    attempt_of=2,
    open=4,
    open_host=4,
    pick=2,
    starts=4,
    series=4,
    segments=5,
    log=3,
    given=3,
)


class Rule(NamedTuple):
    """A policy as data: what to sort by, whether to preempt, when to look again."""

    columns: Ints  # order columns: up to three of the policy, and a free place for the tier
    flags: Ints
    numbers: Floats
    thresholds: Floats  # upper limits of the queues but the last, GPU-seconds
    samples: Floats  # distinct past total services, sorted, GPU-seconds (Gittins)
    prefix: Floats  # running sums of all services up to each of them, starting with 0
    counts: Floats  # how many services there are up to each of them, starting with 0


def make_rule(
    columns: tuple[int, ...],
    flags: dict[int, int],
    numbers: dict[int, float],
    thresholds: tuple[float, ...] = (),
    samples: Floats | None = None,
) -> Rule:
    """Fill in what a policy leaves out."""
    flag = np.zeros(RULE_FLAGS, np.int64)
    for place, value in flags.items():
        flag[place] = value
    number = np.full(RULE_NUMBERS, np.inf)
    for spot, amount in numbers.items():
        number[spot] = amount
    order = np.zeros(4, np.int64)
    order[: len(columns)] = columns
    services = np.asarray(samples if samples is not None else [], np.float64)
    distinct, times = np.unique(services, return_counts=True)
    prefix = np.concatenate([[0.0], np.cumsum(distinct * times)])
    counts = np.concatenate([[0.0], np.cumsum(times)]).astype(np.float64)
    return Rule(order, flag, number, np.asarray(thresholds, np.float64), distinct, prefix, counts)


def copy_state(state: State) -> State:
    """The same tables, to be changed apart."""
    return State._make(_copy(part) for part in state)


def _copy(part: Any) -> Any:
    return type(part)(*map(np.copy, part)) if isinstance(part, tuple) else np.copy(part)


def has_tiers(state: State) -> bool:
    """Whether jobs were given different priorities, so that tiers lead every order."""
    return bool(state.keys.shape[0] > 3)


def with_tiers(rule: Rule) -> Rule:
    """The same rule with the jobs' tiers before its own columns."""
    if rule.columns[0] == BY_TIER:
        return rule
    return rule._replace(columns=np.array([BY_TIER, *rule.columns[:3]], np.int64))
