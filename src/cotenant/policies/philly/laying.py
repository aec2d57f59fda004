"""What a view says, laid out for a decision: waiting jobs queue by queue, running ones youngest first, racks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.philly.tables import BUSY, MARKS, Situation, Workspace

NO_LIMIT = 2**40
_FAILED = 64  # shapes that a decision remembers as failed


class Board:
    """Racks and scratch, kept from decision to decision."""

    def __init__(self, rack_nodes: int) -> None:
        self._rack_nodes = rack_nodes
        self._shape: tuple[bytes, ...] = ()
        self.rack_of: Ints = np.zeros(0, np.int64)
        self.racks: Ints = np.zeros((0, 2), np.int64)
        self._scratch: Workspace | None = None

    def look(self, view: View) -> None:
        """Cut each pool into racks of consecutive nodes."""
        site = view.site
        shape = (site.pool.tobytes(), site.node[:, col.NODE_SIZE].tobytes())
        if shape == self._shape:
            return
        self._shape, self._scratch = shape, None
        racks: list[tuple[int, int]] = []
        self.rack_of = np.zeros(len(site.node), np.int64)
        for lo, hi in site.pool[:, [col.POOL_LO, col.POOL_HI]].tolist():
            for first in range(lo, hi, self._rack_nodes or max(hi - lo, 1)):
                end = min(first + (self._rack_nodes or hi - lo), hi)
                self.rack_of[first:end] = len(racks)
                racks.append((first, end))
        self.racks = np.array(racks, np.int64).reshape(-1, 2)

    def scratch(self, view: View, scene: Situation) -> Workspace:
        """Tables to write to, as a decision begins."""
        site, tenants, jobs, runs = view.site, len(scene.quota), len(scene.row), len(scene.runs)
        kept = self._scratch
        small = kept is None or len(kept.used) != tenants or len(kept.started) < jobs or len(kept.gone) < runs
        if small or kept is None:
            kept = self._scratch = _new(site.node[:, col.NODE_SIZE], tenants, 2 * jobs, 2 * runs, len(self.racks))
        pieces = scene.pieces
        kept.free[:] = site.node[:, col.NODE_CAP]
        kept.free[:] -= np.bincount(pieces[:, 0], pieces[:, 1], len(kept.free)).astype(np.int64)
        if scene.hosts_bind:
            kept.room[:] = scene.host
            each = np.repeat(scene.run_host, scene.runs[:, 4] - scene.runs[:, 3], axis=0)
            np.subtract.at(kept.room, pieces[:, 0], each * pieces[:, 1:])
        kept.used[:] = np.bincount(scene.runs[:, 1], scene.runs[:, 2], tenants)
        kept.limit[:] = site.quota[:, col.Q_LIMIT]
        kept.head[:] = scene.queue[:-1]
        kept.behind[:] = kept.gone[:] = kept.marks[:] = 0
        kept.large[:] = -1
        kept.marks[BUSY] = kept.used.sum()
        return kept


def _new(size: Ints, tenants: int, jobs: int, runs: int, racks: int) -> Workspace:
    nodes, gpus = len(size), int(size.sum()) + 1

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return Workspace(
        free=zeros(nodes), spare=zeros(nodes), trial=zeros(nodes), usable=zeros(nodes), size=zeros(nodes),
        room=np.zeros((nodes, 2)), rack_free=zeros(racks), rack_size=zeros(racks), mark=zeros(nodes),
        rack_mark=zeros(racks), used=zeros(tenants), limit=zeros(tenants), trial_used=zeros(tenants),
        head=zeros(tenants), behind=zeros(tenants), large=zeros(tenants), failed=zeros(_FAILED, 2), gone=zeros(runs),
        victims=zeros(2 * runs + 1), pick=zeros(nodes + 1, 2), kept=zeros(nodes + 1, 2), started=zeros(jobs, 3),
        places=zeros(gpus, 2), marks=zeros(MARKS), until_s=np.zeros(2),
    )  # fmt: skip


def scene_of(view: View, waiting: NDArray[np.bool_], quota: Floats, board: Board, *, ends: bool) -> Situation:
    """What a decision reads; with `ends` the running jobs in order of their believed ends too."""
    board.look(view)
    site, tenants = view.site, len(quota)
    order = np.flatnonzero(waiting)
    order = order[np.lexsort((view.arrival[order], view.submit_s[order], view.tier[order]))]
    rank = np.argsort(view.tenant[order], kind="stable")
    order = order[rank]
    tenant = view.tenant[order]
    runs, run_end_s, run_host, pieces = _running(view)
    gpus = view.gpus[order]
    return Situation(
        now_s=float(view.now_s), gpus_up=view.cluster_gpus, node=site.node, pool=site.pool, rack_of=board.rack_of,
        racks=board.racks, host=np.ascontiguousarray(site.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]),
        hosts_bind=int(site.hosts_bind),
        row=view.rows[order], gpus=gpus, tenant=tenant, pools=view.open_pools[order],
        parts=view.parts[order], roams=(view.mode[order] != col.CONSOLIDATED).astype(np.int64),
        shape=view.class_number[order], rank=rank, cpus=view.cpus[order] / gpus, mem_gib=view.mem_gib[order] / gpus,
        remaining_s=view.remaining_s[order], queue=np.searchsorted(tenant, np.arange(tenants + 1)), quota=quota,
        runs=runs, run_host=run_host, run_end_s=run_end_s, 
        soonest=np.argsort(run_end_s if ends else run_end_s[:0], kind="stable"), pieces=pieces,
    )  # fmt: skip


def _running(view: View) -> tuple[Ints, Floats, Floats, Ints]:
    """Running jobs, youngest first: (row, tenant, GPUs, first piece, end), believed ends, cores and GiB, pieces."""
    at = np.flatnonzero(view.running)[::-1]
    at = at[np.argsort(-view.since_s[at], kind="stable")]
    held = view.held  # in step with the rows
    first, end = np.searchsorted(held[:, 0], at), np.searchsorted(held[:, 0], at, side="right")
    gpus = np.maximum(view.gpus[at], 1)
    runs = np.stack([view.rows[at], view.tenant[at], view.gpus[at], first, end], axis=1)
    host = np.stack([view.cpus[at] / gpus, view.mem_gib[at] / gpus], axis=1)
    return runs, view.now_s + view.remaining_s[at], host, np.ascontiguousarray(held[:, 1:3])
