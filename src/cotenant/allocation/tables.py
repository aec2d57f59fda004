"""The tables of one packing: jobs in a list, servers, and who got what where. Kernels write, Python reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints

# Columns of `free` and `cap`.
GPU, CORES, MEMORY = 0, 1, 2
# Columns of `slices` (one per job and server) and of `at` (first slice of a job, how many).
OF, NODE, TAKEN = 0, 1, 2
BEGIN, COUNT = 0, 1
# Columns of `lend`.
LENT_GIB, LENT_SPEED = 0, 1
# Ways to choose among servers that can hold a job.
FIRST_FIT, BEST_FIT, FEWEST_GPUS, ALIGNED, LEAST_WANTED = 0, 1, 2, 3, 4


class Packing(NamedTuple):
    """`want`, `floor` and `got` hold cores, memory and speed, all per GPU of the job."""

    gpus: Ints  # jobs: GPUs of each gang
    want: Matrix  # jobs x 3: best-case demand
    floor: Matrix  # jobs x 3: proportional share
    got: Matrix  # jobs x 3: what it was given
    at: IntMatrix  # jobs x (first slice, slices); no slices: not placed
    kept: Ints  # jobs: 1 where the slices are given beforehand and shall stay
    slices: IntMatrix  # slices x (job, node, GPUs)
    free: Matrix  # nodes x (GPUs, cores, memory)
    cap: Matrix  # nodes x (GPUs, cores, memory)
    on: IntMatrix  # nodes x places: jobs on a node, -1 for none
    load: Floats  # nodes: cores that jobs there would use at best
    open: IntMatrix  # scratch: free GPUs as the rules of `placement.fit` want them
    pick: IntMatrix  # scratch: (node, GPUs) of the place just found
    x: Ints  # scalars: slices in use, and whether any server may borrow memory
    lend: Matrix  # nodes x (GiB that it may borrow beyond `cap`, speed of what works there); `free` is negative by them


def make_packing(jobs: int, cap: Floats, lend: Floats | None = None) -> Packing:
    """Room for so many jobs on these servers; nothing placed."""
    nodes = len(cap)
    total = int(cap[:, GPU].sum())
    most = int(cap[:, GPU].max()) if nodes else 0
    return Packing(
        gpus=np.zeros(jobs, np.int64),
        want=np.zeros((jobs, 3)),
        floor=np.zeros((jobs, 3)),
        got=np.zeros((jobs, 3)),
        at=np.zeros((jobs, 2), np.int64),
        kept=np.zeros(jobs, np.int64),
        slices=np.zeros((total + 1, 3), np.int64),
        free=np.array(cap, np.float64),
        cap=np.array(cap, np.float64),
        on=np.full((nodes, max(most, 1)), -1, np.int64),
        load=np.zeros(nodes),
        open=np.zeros((nodes, 4), np.int64),
        pick=np.zeros((nodes + 1, 2), np.int64),
        x=np.array([0, int(lend is not None and bool((np.asarray(lend)[:, LENT_GIB] > 0).any()))], np.int64),
        lend=np.zeros((nodes, 2)) if lend is None else np.array(lend, np.float64),
    )


def clear(packing: Packing, cap: Floats) -> None:
    """Empty servers, nothing kept, nothing placed."""
    packing.cap[:] = cap
    packing.free[:] = cap
    packing.on[:] = -1
    packing.load[:] = 0.0
    packing.got[:] = 0.0
    packing.at[:] = 0
    packing.kept[:] = 0
    packing.x[0] = 0


def first(packing: Packing, jobs: int) -> Packing:
    """The same tables, seen as if there were only so many jobs."""
    return packing._replace(
        gpus=packing.gpus[:jobs],
        want=packing.want[:jobs],
        floor=packing.floor[:jobs],
        got=packing.got[:jobs],
        at=packing.at[:jobs],
        kept=packing.kept[:jobs],
    )
