"""Several jobs on one GPU: which GPUs of a node a job sits on, and who sits there with it.

Only in runs whose policy shares GPUs. Every GPU has an identity then, and a few places; a slice carries a mask
of the GPUs of its node. A GPU counts as busy as long as anybody uses it. A guest that came onto the GPUs of a
running job inherits them when its host leaves.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Ints


@kernel
def choose_empty(gpu: IntMatrix, leaving: Ints, bound: Ints, first: int, end: int, count: int) -> int:
    """Mask of `count` GPUs of a node that nobody is given: rather those that are free now and to which nobody is
    bound, then the first ones."""
    mask = 0
    for level in range(3):
        for g in range(first, end):
            bit = 1 << (g - first)
            if count == 0 or gpu[g, 0] >= 0 or mask & bit:
                continue
            if level == 2 or (leaving[g] == 0 and (level == 1 or bound[g] == 0)):
                mask |= bit
                count -= 1
    return mask


@kernel
def is_clear(slices: IntMatrix, gpu_first: Ints, leaving: Ints, head: int) -> bool:
    """Whether nobody has still to leave the GPUs of a list of slices."""
    at = head
    while at >= 0:
        first = gpu_first[slices[at, SLICE_NODE]]
        mask, g = slices[at, SLICE_MASK], first
        while mask:
            if mask & 1 and leaving[g] > 0:
                return False
            mask >>= 1
            g += 1
        at = slices[at, SLICE_NEXT]
    return True


@kernel
def count_cells(slices: IntMatrix, gpu_first: Ints, cells: Ints, head: int, sign: int) -> None:
    """Count one job more (+1) or less (-1) on each GPU of a list of slices."""
    at = head
    while at >= 0:
        g = gpu_first[slices[at, SLICE_NODE]]
        mask = slices[at, SLICE_MASK]
        while mask:
            if mask & 1:
                cells[g] += sign
            mask >>= 1
            g += 1
        at = slices[at, SLICE_NEXT]


@kernel
def occupy(
    i: IntMatrix, node: IntMatrix, slices: IntMatrix, gpu: IntMatrix, gpu_first: Ints, leaving: Ints, bound: Ints,
    x: Ints, job: int, head: int,
) -> int:  # fmt: skip
    """Sit down on the GPUs of a list of slices, on empty ones where no mask says which; how many became busy."""
    became = 0
    at = head
    while at >= 0:
        n = slices[at, SLICE_NODE]
        first, end = gpu_first[n], gpu_first[n + 1]
        if slices[at, SLICE_MASK] == 0:
            slices[at, SLICE_MASK] = choose_empty(gpu, leaving, bound, first, end, slices[at, SLICE_GPUS])
        mask = slices[at, SLICE_MASK]
        for g in range(first, end):
            if (mask >> (g - first)) & 1:
                place = 0
                while place < gpu.shape[1] - 1 and gpu[g, place] >= 0:
                    place += 1
                gpu[g, place] = job
                if place == 0:
                    node[n, NODE_FREE] -= 1
                    became += 1
        at = slices[at, SLICE_NEXT]
    x[IDLE] -= became
    return became


@kernel
def vacate(
    i: IntMatrix, node: IntMatrix, slices: IntMatrix, gpu: IntMatrix, gpu_first: Ints, x: Ints, job: int, head: int
) -> int:
    """Get up from all of one's GPUs; guests inherit. How many became idle."""
    became = 0
    heir = -1
    at = head
    while at >= 0:
        n = slices[at, SLICE_NODE]
        first, end = gpu_first[n], gpu_first[n + 1]
        mask = slices[at, SLICE_MASK]
        for g in range(first, end):
            if not (mask >> (g - first)) & 1:
                continue
            kept = 0
            for place in range(gpu.shape[1]):
                other = gpu[g, place]
                gpu[g, place] = -1
                if other >= 0 and other != job:
                    gpu[g, kept] = other
                    kept += 1
                    if i[other, HOST] == job:
                        if heir < 0:
                            heir = other
                        i[other, HOST] = -1 if other == heir else heir
            if kept == 0:
                node[n, NODE_FREE] += 1
                became += 1
        at = slices[at, SLICE_NEXT]
    i[job, HOST] = -1
    x[IDLE] += became
    return became


@kernel
def take_host(
    f: Matrix, i: IntMatrix, host: Matrix, slices: IntMatrix, quota: IntMatrix, x: Ints, job: int, head: int, sign: int
) -> int:
    """Take (+1) or give back (-1) cores, memory and quota of a list of slices; how many nodes."""
    gpus = i[job, GPUS]
    nodes = 0
    at = head
    while at >= 0:
        n, count = slices[at, SLICE_NODE], slices[at, SLICE_GPUS]
        if x[USE_HOST] == 1:
            host[n, HOST_CPU_FREE] -= sign * count / gpus * f[job, CPUS]
            host[n, HOST_MEM_FREE] -= sign * count / gpus * f[job, MEM]
        nodes += 1
        at = slices[at, SLICE_NEXT]
    if i[job, OPPORTUNISTIC] == 0:
        quota[i[job, TENANT], Q_USED] += sign * gpus
    return nodes


@kernel
def copy_slices(slices: IntMatrix, x: Ints, free_slice: int, head: int) -> int:
    """A second list of slices on the very same GPUs, for a guest."""
    copy, last = -1, -1
    at = head
    while at >= 0:
        slot = x[free_slice]
        x[free_slice] = slices[slot, SLICE_NEXT]
        slices[slot, SLICE_NODE] = slices[at, SLICE_NODE]
        slices[slot, SLICE_GPUS] = slices[at, SLICE_GPUS]
        slices[slot, SLICE_MASK] = slices[at, SLICE_MASK]
        slices[slot, SLICE_NEXT] = -1
        if last < 0:
            copy = slot
        else:
            slices[last, SLICE_NEXT] = slot
        last = slot
        at = slices[at, SLICE_NEXT]
    return copy
