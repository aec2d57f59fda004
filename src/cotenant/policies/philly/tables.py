"""What a decision of Philly works on: what it reads, what it remembers, and its scratch."""

from __future__ import annotations

from typing import NamedTuple

from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints

# What a job does that does not fit: hold GPUs until a time-out, nothing, or have them reserved for it.
HOLD, NOTHING, RESERVE = 0, 1, 2
WAYS = {"hold": HOLD, "none": NOTHING, "reserve": RESERVE}
# Locality: as few servers as can be in one rack; more servers of one rack; several racks.
FEWEST, ONE_RACK, ANYWHERE = 0, 1, 2
# Columns of running jobs, of racks and of holds.
RUN_ROW, RUN_TENANT, RUN_GPUS, RUN_FIRST, RUN_END = 0, 1, 2, 3, 4
RACK_FIRST, RACK_END = 0, 1
HOLD_ROW, HOLD_NODE, HOLD_GPUS = 0, 1, 2
# Counts that last.
N_HOLDS, N_STARTS, N_OUT_OF_ORDER, N_PAST_LARGE, N_HARMFUL = 0, 1, 2, 3, 4
COUNTS = 5
# Counts of one decision.
LEFT, BUSY, N_PICKED, N_STARTED, N_PLACES, N_VICTIMS, N_FAILED, IS_RESERVED, OVERS = 0, 1, 2, 3, 4, 5, 6, 7, 8
MARKS = 9
LARGE = 4  # GPUs: of jobs above this the paper asks whether being overtaken delays them
SLACK_S = 1e-6


class Timing(NamedTuple):
    """Parameters."""

    timeout_s: float
    backoff_s: float
    threshold: float  # part of the GPUs that must be in use before anybody is preempted
    retries: int
    way: int


class Situation(NamedTuple):
    """What a decision reads. Waiting jobs are numbered queue by queue, each in its own order."""

    now_s: float
    gpus_up: int
    node: IntMatrix
    pool: IntMatrix
    rack_of: Ints  # of each node
    racks: IntMatrix
    host: Matrix  # nodes x (cores, GiB)
    hosts_bind: int
    row: Ints
    gpus: Ints
    tenant: Ints
    pools: Ints  # in which each may run, as bits
    parts: Ints
    roams: Ints  # 1 where its placement asks for no locality
    shape: Ints  # jobs of one shape fit or fail together
    rank: Ints  # place in the order of all waiting jobs: the tie-break between queues
    cpus: Floats  # per GPU
    mem_gib: Floats
    remaining_s: Floats
    queue: Ints  # first job of each tenant, and the end
    quota: Floats  # by tenant
    runs: IntMatrix  # running jobs, youngest first
    run_host: Matrix  # their cores and GiB per GPU
    run_end_s: Floats  # when each is believed to end
    soonest: Ints  # running jobs in order of that
    pieces: IntMatrix  # (node, GPUs)


class Lasting(NamedTuple):
    """What lasts, by rows."""

    began_s: Floats  # when its first attempt to get GPUs began; NaN: it makes none
    passed: Ints  # the large job that it overtook, -1: none
    at: Ints  # its number among the waiting jobs when it was last seen there
    holds: IntMatrix
    counts: Ints


class Workspace(NamedTuple):
    """What a decision writes to."""

    free: Ints  # by node: neither used nor held
    spare: Ints  # the same for jobs that would be in the way of the reservation
    trial: Ints
    usable: Ints  # of these, for the job that is looked at
    size: Ints  # the same if nobody else were there
    room: Matrix  # nodes x (cores, GiB) left
    rack_free: Ints
    rack_size: Ints
    mark: Ints  # nodes
    rack_mark: Ints
    used: Ints  # by tenant
    limit: Ints  # most that it may use
    trial_used: Ints
    head: Ints  # next job of each queue
    behind: Ints  # by tenant: 1 once a job of its queue has to wait
    large: Ints  # by tenant: the first such job that is large, -1: none
    failed: IntMatrix  # (shape, locality) that do not fit
    gone: Ints  # running jobs that are preempted
    victims: Ints
    pick: IntMatrix  # (node, GPUs) found
    kept: IntMatrix
    started: IntMatrix  # (job, first place, end)
    places: IntMatrix
    marks: Ints
    until_s: Floats  # when to decide again; when the reservation begins
