"""A picture of shared GPUs on which a policy tries things out before it plans them.

Who sits where, how much memory is left, what cores and host memory the nodes still have. Nothing here touches the
engine's tables; what comes out are places for a `Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.plan import Places
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints


class Board:
    """GPUs of the cluster with the jobs on them; jobs are rows, GPUs numbers over all nodes."""

    def __init__(self, view: View) -> None:
        site = view.site
        self.site, self.view = site, view
        self.first: list[int] = site.gpu_first.tolist()
        self.node_of: Ints = site.gpu_node
        self.pool_of: Ints = site.node[self.node_of, col.NODE_POOL]
        self.type_of: Ints = site.pool[self.pool_of, col.POOL_TYPE]
        self.up: NDArray[np.bool_] = site.node[self.node_of, col.NODE_CAP] > 0
        self.users: list[list[int]] = [[job for job in jobs if job >= 0] for jobs in site.users.tolist()]
        self.gpus_of: dict[int, list[int]] = {}
        for gpu, jobs in enumerate(self.users):
            for job in jobs:
                self.gpus_of.setdefault(job, []).append(gpu)
        self.need: dict[int, float] = {row: float(view.gpu_gib[view.at(row)]) for row in self.gpus_of}
        self.capacity: Floats = site.gpu_gib[self.type_of]
        self.hosts: Floats = site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]]

    def kind(self, row: int) -> int:
        """Kind of a job."""
        return int(self.view.kind[self.view.at(row)])

    def tenant(self, row: int) -> int:
        """Tenant of a job."""
        return int(self.view.tenant[self.view.at(row)])

    def gang(self, row: int) -> int:
        """GPUs of a job: as many as it sits on here, or has asked for."""
        return len(self.gpus_of[row]) if row in self.gpus_of else self.asked(row)

    def asked(self, row: int) -> int:
        """GPUs that a job asked for, whatever it sits on."""
        return int(self.view.asked_gpus[self.view.at(row)])

    def pools(self, row: int) -> list[int]:
        """Pools in which a job may run."""
        mask = int(self.view.open_pools[self.view.at(row)])
        return [p for p in range(len(self.site.pool)) if (mask >> p) & 1]

    def free_gib(self, gpu: int, without: Iterable[int] = ()) -> float:
        """Memory left on a GPU, as if some jobs were not there."""
        return float(self.capacity[gpu]) - sum(self.need[job] for job in self.users[gpu] if job not in without)

    def nodes(self, pool: int) -> range:
        """Nodes of a pool."""
        return range(int(self.site.pool[pool, col.POOL_LO]), int(self.site.pool[pool, col.POOL_HI]))

    def gpus(self, node: int) -> list[int]:
        """GPUs of a node that is up."""
        inside = range(self.first[node], self.first[node + 1])
        return list(inside) if self.site.node[node, col.NODE_CAP] > 0 else []

    def fed(self, row: int, node: int) -> int:
        """For how many GPUs of a job a node still has the cores and memory."""
        most = self.first[node + 1] - self.first[node]
        if not self.site.hosts_bind:
            return most
        for need, left in zip(self._per_gpu(row), self.hosts[node].tolist(), strict=True):
            if need > 0:
                most = min(most, int(max(left, 0.0) / need + 1e-9) if left < most * need else most)
        return most

    def _per_gpu(self, row: int) -> list[float]:
        """Cores and memory of a job on each of its GPUs, the same at any size."""
        view, at = self.view, self.view.at(row)
        size = max(int(view.gpus[at]), 1)
        return [float(view.cpus[at]) / size, float(view.mem_gib[at]) / size]

    def limit_by_hosts(self, row: int, gpus: Iterable[int]) -> list[int]:
        """Of these GPUs, in order, those that their nodes can still feed."""
        left: dict[int, int] = {}
        kept = []
        for gpu in gpus:
            node = int(self.node_of[gpu])
            room = left.setdefault(node, self.fed(row, node))
            if room > 0:
                left[node] = room - 1
                kept.append(gpu)
        return kept

    def put(self, row: int, gpus: Iterable[int], need_gib: float) -> None:
        """Seat a job."""
        self.gpus_of[row] = sorted(gpus)
        self.need[row] = need_gib
        each = self._per_gpu(row)
        for gpu in self.gpus_of[row]:
            self.users[gpu].append(row)
            self.hosts[self.node_of[gpu]] -= each

    def remove(self, row: int) -> None:
        """Let a job get up."""
        each = self._per_gpu(row)
        for gpu in self.gpus_of.pop(row, []):
            self.users[gpu].remove(row)
            self.hosts[self.node_of[gpu]] += each
        self.need.pop(row, None)

    def resize(self, row: int, gpus: Iterable[int]) -> None:
        """Let a job sit on these GPUs instead; what it needs on each of them stays."""
        need = self.need[row]
        self.remove(row)
        self.put(row, gpus, need)

    def places(self, row: int) -> Places:
        """The GPUs of a job as places of a plan."""
        masks: dict[int, int] = {}
        for gpu in self.gpus_of[row]:
            node = int(self.node_of[gpu])
            masks[node] = masks.get(node, 0) | 1 << (gpu - self.first[node])
        return tuple((node, mask.bit_count(), mask) for node, mask in sorted(masks.items()))

    def parts(self, row: int) -> int:
        """On how many nodes a job wants equal parts; 0: it leaves that open."""
        return int(self.view.parts[self.view.at(row)])

    def _in_parts(self, row: int, options: dict[int, list[int]]) -> list[int]:
        """Equal parts on as many nodes as the job asks for, the fullest that can hold one first."""
        parts = self.parts(row)
        each = self.gang(row) // parts
        fit = sorted((node for node in options if len(options[node]) >= each), key=lambda n: (len(options[n]), n))
        return [gpu for node in fit[:parts] for gpu in options[node][:each]] if len(fit) >= parts else []

    def consolidated(self, row: int, usable: list[bool], prefer: Floats | None = None) -> list[int]:
        """GPUs for a job on as few nodes as it needs, among usable ones; [] if there are none.

        On a node the GPUs with the lowest `prefer` come first; of several nodes the one with the fewest usable GPUs.
        """
        rank = np.zeros(len(self.users)) if prefer is None else prefer
        gang = self.gang(row)
        for pool in self.pools(row):
            options: dict[int, list[int]] = {}
            for node in self.nodes(pool):
                here = sorted((gpu for gpu in self.gpus(node) if usable[gpu]), key=lambda gpu: (rank[gpu], gpu))
                options[node] = here[: self.fed(row, node)]
            if self.parts(row):
                found = self._in_parts(row, options)
                if found:
                    return found
                continue
            whole = [node for node, gpus in options.items() if len(gpus) >= gang]
            if whole:
                best = min(
                    whole, key=lambda node: (sum(rank[g] for g in options[node][:gang]), len(options[node]), node)
                )
                return options[best][:gang]
            largest = max(self.first[node + 1] - self.first[node] for node in self.nodes(pool))
            if gang > largest:
                taken: list[int] = []
                for node in sorted(options, key=lambda node: (-len(options[node]), node)):
                    taken += options[node][: gang - len(taken)]
                if len(taken) == gang:
                    return taken
        return []
