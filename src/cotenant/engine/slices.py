"""Which GPUs of which node a job has, as linked lists of slices; and the GPUs to which suspended jobs are bound."""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import State
from cotenant.engine.sharing import copy_slices, count_cells


@kernel
def push_slice(s: State, node: int, gpus: int, mask: int, head: int) -> int:
    """A slice in front of a linked list of them; the new head."""
    slot = s.x[FREE_SLICE]
    s.x[FREE_SLICE] = s.slices[slot, SLICE_NEXT]
    s.slices[slot, SLICE_NODE] = node
    s.slices[slot, SLICE_GPUS] = gpus
    s.slices[slot, SLICE_MASK] = mask
    s.slices[slot, SLICE_NEXT] = head
    return int(slot)


@kernel
def new_slices(s: State, count: int) -> int:
    """Turn the placement in `s.pick` into a linked list of slices; the head of the list."""
    head = -1
    for k in range(count - 1, -1, -1):
        head = push_slice(s, s.pick[k, 0], s.pick[k, 1], 0, head)
    return int(head)


@kernel
def free_slices(s: State, head: int) -> None:
    """Give a list of slices back."""
    while head >= 0:
        following = s.slices[head, SLICE_NEXT]
        s.slices[head, SLICE_NEXT] = s.x[FREE_SLICE]
        s.x[FREE_SLICE] = head
        head = following


@kernel
def free_bound(s: State) -> int:
    """A class for one more suspended job, -1 if as many are suspended as may be."""
    c = 0
    while c < s.cls.shape[0] and s.cls[c, C_BOUND] != -1:
        if s.cls[c, C_BOUND] == -2:
            return c
        c += 1
    return -1


@kernel
def bind_class(s: State, job: int) -> None:
    """A suspended job is alike to no other: it waits in a class of its own, for as many GPUs as it stands on."""
    if s.cls[s.i[job, CLASS], C_BOUND] == job:
        return
    c, of = free_bound(s), s.i[job, CLASS]
    s.cls[c, C_GPUS] = s.i[job, GPUS]
    for column in (C_TENANT, C_PART, C_MODE, C_POOLS, C_NODES, C_TYPE, C_LEAF):
        s.cls[c, column] = s.cls[of, column]
    s.cls[c, C_BOUND], s.cls[c, C_ORIGIN] = job, of
    s.cls[c, C_HEAD] = s.cls[c, C_TWIN] = -1
    s.i[job, CLASS] = c


@kernel
def slices_for(s: State, job: int, count: int) -> int:
    """Slices of the place just found; of a suspended job the very GPUs to which it is bound."""
    if s.i[job, HOME] >= 0:
        return copy_slices(s.slices, s.x, FREE_SLICE, s.i[job, HOME])
    return new_slices(s, count)


@kernel
def unbind(s: State, job: int) -> None:
    """A suspended job goes on, or is ended: it is bound to no GPUs any more."""
    count_cells(s.slices, s.gpu_first, s.gpu_bound, s.i[job, HOME], -1)
    free_slices(s, s.i[job, HOME])
    s.i[job, HOME] = -1
    s.f[job, BARRED] = math.nan
    c = s.i[job, CLASS]
    if s.cls[c, C_BOUND] == job:
        s.cls[c, C_BOUND] = -2
        s.i[job, CLASS] = s.cls[c, C_ORIGIN]


@kernel
def shift(s: State, job: int, head: int, column: int, sign: int) -> None:
    """Count a list of slices as free (+1) or taken (-1) in a column of the open tables, cores and memory with it."""
    gpus = s.i[job, GPUS]
    at = head
    while at >= 0:
        n, count = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
        s.open[n, column] += sign * count
        if s.x[USE_HOST] == 1:
            s.open_host[n, column] += sign * (count / gpus * s.f[job, CPUS])
            s.open_host[n, column + 2] += sign * (count / gpus * s.f[job, MEM])
        at = s.slices[at, SLICE_NEXT]
