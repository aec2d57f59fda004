"""Cores and memory of the jobs that run: worked out whenever they change, and changed while they run.

The allocator is the simulator's. GPUs stay where the policy put them; beside them every job gets what the allocator
says, from the curves that `cotenant profile` measured (jobs without one get their share). Limits are set by
the backend: a quota of CPU time and a limit of memory. The runtime is told how many data loader workers fit; where the
backend cannot limit CPU time it also paces the steps. None of this is journaled: it is worked out again after a crash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotenant.allocation import Request, Share, demands, make_allocator
from cotenant.allocation.servers import keep
from cotenant.allocation.tables import COUNT, make_packing
from cotenant.backends.base import NodeInfo
from cotenant.core.lifecycle import JobState
from cotenant.core.sensitivity import CPU, MEM
from cotenant.runtime.protocol import Settings
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Options
from cotenant.service.store.job import LiveJob
from cotenant.workload.profiles.base import normal
from cotenant.workload.profiles.curves import Curve, load_curves, sensitivity_of

_START_S = 5.0  # until its first report, but no longer, a job has at least its share of cores


@dataclass(frozen=True, slots=True)
class Given:
    """What one job has in all: cores, GiB (0 for no limit), loader workers, and a pause per step where it is paced."""

    cpus: float
    mem_gib: float
    workers: int
    pause_s: float = 0.0


class HostLimits:
    """Deals out cores and memory among the jobs that run; does nothing unless the service has an allocator."""

    def __init__(self, options: Options, reports: Reports, quota: Callable[[], bool]) -> None:
        self._reports, self._clock, self.quota = reports, options.clock, quota
        self._allocator = make_allocator(options.allocator) if options.allocator else None
        self._curves = load_curves(Path(options.curves)) if options.curves else {}
        self._given: dict[str, Given] = {}  # by job
        self._set: dict[str, Given] = {}  # what was last applied, by key of the attempt

    def to_launch(self, job: LiveJob) -> Given | None:
        """What a job starts with; its runtime will hear of it."""
        given = self._given.get(job.id)
        if given is not None:
            self._tell(job, given)
            self._set[job.key] = given
        return given

    def to_change(self, on_gpus: Mapping[str, LiveJob]) -> list[tuple[LiveJob, Given]]:
        """Running jobs whose limits are not what they should be; their runtimes are told."""
        if self._allocator is None:
            return []
        alive = {job.key for job in on_gpus.values()}
        self._set = {key: given for key, given in self._set.items() if key in alive}
        found = []
        for job in on_gpus.values():
            given = self._given.get(job.id)
            if given is None or job.state != JobState.RUNNING or self._set.get(job.key) == given:
                continue
            self._tell(job, given)
            if self.quota():
                found.append((job, given))
            else:
                self._set[job.key] = given
        return found

    def applied(self, key: str, given: Given) -> None:
        """These are the limits of an attempt now; those that could not be set are tried again."""
        self._set[key] = given

    def _tell(self, job: LiveJob, given: Given) -> None:
        self._reports.set_for(
            job.id, Settings(workers=given.workers, throttle_s=given.pause_s if not self.quota() else None)
        )

    def deal(self, on_gpus: Mapping[str, LiveJob], nodes: Iterable[NodeInfo]) -> None:
        """Work out what everybody on GPUs should have; pools of like nodes apart from each other.

        Where jobs share GPUs nothing is dealt out: the allocators know one job per GPU.
        """
        if self._allocator is None:
            return
        jobs = [job for job in on_gpus.values() if job.state != JobState.STOPPING]
        self._given = {}
        pools: dict[str, list[NodeInfo]] = {}
        for node in nodes:
            pools.setdefault(node.gpu_type, []).append(node)
        for pool in pools.values():
            names = {node.name for node in pool}
            mine = [job for job in jobs if job.last.gpus and all(name in names for name, _ in job.last.gpus)]
            held = sum(job.size for job in mine)
            if mine and held <= sum(node.gpus for node in pool) and all(node.gpus > 0 for node in pool):
                self._deal_pool(pool, mine)

    def _deal_pool(self, nodes: list[NodeInfo], jobs: list[LiveJob]) -> None:
        assert self._allocator is not None
        kinds = list(dict.fromkeys((_curve_name(job), job.size) for job in jobs))
        kind = np.array([kinds.index((_curve_name(job), job.size)) for job in jobs], np.int64)
        gangs = np.array([gpus for _, gpus in kinds], np.int64)
        cap = np.array([[node.gpus, node.cpus, node.mem_gib] for node in nodes], np.float64)
        least = (cap / cap[:, :1]).min(axis=0)
        share = Share(float(cap[:, 0].max()), float(least[1] * cap[:, 0].max()), float(least[2] * cap[:, 0].max()))
        matrices = sensitivity_of([name for name, _ in kinds], self._curves)
        asked = demands(matrices, gangs, share, self._allocator.number("saturate"))
        packing = make_packing(len(jobs), cap)
        packing.gpus[:] = gangs[kind]
        at = {node.name: number for number, node in enumerate(nodes)}
        for k, job in enumerate(jobs):
            for number, (name, indexes) in enumerate(job.last.gpus):
                packing.pick[number] = at[name], len(indexes)
            keep(packing, k, len(job.last.gpus))
        order = np.arange(len(jobs))
        nobody = np.array([[job.spec.cpus or np.nan, job.spec.mem_gib or np.nan] for job in jobs])
        nobody /= packing.gpus[:, None]
        self._allocator.pack(
            Request(
                packing, order, order.copy(), kind, gangs, asked, share, 0, len(nodes),
                np.zeros(len(jobs), np.int64), np.ones(len(jobs)), nobody,
            )
        )  # fmt: skip
        for k, job in enumerate(jobs):
            if packing.at[k, COUNT] and packing.got[k, CPU] > 0:
                self._given[job.id] = self._whole(job, float(packing.got[k, CPU]), float(packing.got[k, MEM]), share)

    def _whole(self, job: LiveJob, cpus: float, mem_gib: float, share: Share) -> Given:
        """What a job has in all; memory is limited only where somebody said what the job needs."""
        gpus, curve = job.size, self._curves.get(normal(_curve_name(job)))
        need = max(job.spec.mem_gib, gpus * curve.mem_gib if curve is not None else 0.0)
        limit = max(need, gpus * min(mem_gib, share.mem_per_gpu)) if need > 0 else 0.0
        if self._reports.of(job.id) is None and self._clock() - job.last.launched_s < _START_S:
            cpus = max(cpus, share.cpus_per_gpu)  # imports take cores, not steps: do not make them wait for long
        cores = round(gpus * cpus, 3)
        return Given(cores, round(limit, 3), max(1, math.floor(cores + 1e-6)), _pause_s(curve, cpus))


def _curve_name(job: LiveJob) -> str:
    """A curve belongs to a model, where a job names one, else to jobs of a name."""
    return job.spec.model or job.spec.name


def _pause_s(curve: Curve | None, cpus: float) -> float:
    """What to wait after a step so that a job with all cores goes as slowly as with so many."""
    if curve is None:
        return 0.0
    rate = float(np.interp(cpus, curve.cores, curve.steps_per_s)) * min(cpus / float(curve.cores[0]), 1.0)
    return max(1 / rate - 1 / curve.top, 0.0)
