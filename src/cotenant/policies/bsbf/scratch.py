"""What a search of SJF-BSBF works on: options, tables, and why a job still waits.

The tables are laid out once and filled at every decision; those by job have room for more than there are."""

from __future__ import annotations

from typing import NamedTuple

from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints

# Flags of a search.
TEST, SCALE, CONSOLIDATE, QUEUE, PAPER, SOFT = 0, 1, 2, 3, 4, 5
FLAGS = 6
# Limits of memory that gives.
CAP, BUS_GIB_S = 0, 1
MOST = 2  # jobs per GPU
# Why a job still waits (one code per waiting job).
STARTED, NO_GPUS, NO_MEMORY, WAITING_PAYS, OVER_QUOTA = 0, 1, 2, 3, 4


class Scene(NamedTuple):
    """What the search reads: jobs by their places in the view, nodes and pools."""

    kind: Ints
    gpus: Ints
    tenant: Ints
    pools: Ints  # in which each job may run, as bits
    cpus: Floats
    mem_gib: Floats
    node: IntMatrix
    pool: IntMatrix
    gpu_first: Ints
    hosts_bind: int  # 1 when cores and host memory are modelled
    eased: Matrix  # kind, level -> part of a pair's slowdown that is left
    memory: Matrix  # kind, level -> GiB at its peak
    least: Floats  # kind -> part of it that it cannot do without
    curve: Matrix  # kind, point -> speed with a part of it
    points: Floats  # those parts
    steps_per_s: Floats  # kind -> how often what is missing goes out and comes back
    gpu_gib: Floats  # GPU type -> GiB
    limits: Floats  # oversubscription cap (0: peaks must fit) and GiB/s of the bus


class Scratch(NamedTuple):
    """Tables that the search works on; jobs are places in the view."""

    users: IntMatrix  # GPUs x places
    gib: Floats  # GiB left on each GPU
    room: Matrix  # nodes x (cores left, GiB of host memory left)
    quota: Ints  # GPUs that each tenant may still take
    load: Ints  # jobs on each node
    nodes: Ints  # nodes in the order of the walk
    hosts: Ints  # hosts found, -1 at the end
    scores: Floats  # their means, or costs
    means: Floats  # what mates have left, then when they end
    ends: Floats  # when mates end that end first
    empty: Ints  # GPUs found without anybody
    chosen: Ints  # GPUs of the placement tried
    best: Ints  # GPUs of the best placement so far
    mates: Ints  # hosts of the placement tried
    kept: Ints  # GPUs of the best node so far
    freed: Floats  # by GPU, sorted inside each pool once it is asked for: seconds until one, two, ... GPUs are empty
    sorted: Ints  # by pool: 1 when they are
    lined: Ints  # by pool: 1 when its nodes are in the order of the walk
    ahead: Ints  # by pool: GPUs that jobs earlier in the order still wait for
    slow: Floats  # by job: slowdown from those it shares with already
    start: Floats  # by job: seconds until it uses its GPUs: what is left of its start-up, or all of it
    level: Ints  # by job: into how many sub-batches its batch is cut, as a power of two
    out: IntMatrix  # started: (job, level, GPUs)
    out_gpus: IntMatrix  # their GPUs
    why: Ints  # by job: why it waits
    mark: Ints  # by job: scratch of those who go through all GPUs and want each job once
    place: Ints  # by row: its place in the view, where it is in it
