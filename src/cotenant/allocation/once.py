"""One packing from nothing, outside any engine: for tests, measurements and the live service's questions."""

from __future__ import annotations

import numpy as np

from cotenant.allocation.base import Allocator, Request
from cotenant.allocation.demand import Demands, Share
from cotenant.allocation.tables import COUNT, Packing, make_packing
from cotenant.core.sensitivity import RATE
from cotenant.core.workload import Floats, Ints


def pack_once(
    allocator: Allocator, kind: Ints, gangs: Ints, demands: Demands, share: Share, servers: int, *,
    tenant: Ints | None = None, left_s: Floats | None = None, asked: Floats | None = None,
) -> Packing:  # fmt: skip
    """Jobs of these kinds, in order, on empty servers of one kind."""
    jobs = len(kind)
    cap = np.tile(np.array([share.gpus, share.cpus, share.mem]), (servers, 1))
    packing = make_packing(jobs, cap)
    packing.gpus[:] = gangs[kind]
    order = np.arange(jobs)
    kind, gangs = np.asarray(kind, np.int64), np.asarray(gangs, np.int64)
    request = Request(
        packing, order, order.copy(), kind, gangs, demands, share, 0, servers,
        np.zeros(jobs, np.int64) if tenant is None else tenant,
        np.ones(jobs) if left_s is None else left_s,
        np.full((jobs, 2), np.nan) if asked is None else asked,
    )  # fmt: skip
    allocator.pack(request)
    return packing


def placed(packing: Packing) -> int:
    """How many jobs run."""
    return int((packing.at[:, COUNT] > 0).sum())


def throughput(packing: Packing) -> float:
    """Sum of the speeds of all jobs against their proportional shares."""
    runs = packing.at[:, COUNT] > 0
    return float((packing.got[runs, RATE] / np.maximum(packing.floor[runs, RATE], 1e-12)).sum())
