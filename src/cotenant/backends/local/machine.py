"""What this machine has to give: GPUs real or virtual, cores, memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cotenant.backends.base import NodeInfo
from cotenant.backends.local import cgroups
from cotenant.backends.local import gpus as devices
from cotenant.backends.local.gpus import Gpu
from cotenant.backends.local.keeper import text_of
from cotenant.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes by name (one per GPU type) and, for each, the device behind every GPU index."""

    gpu: Literal["nvml", "virtual", "none"]
    nodes: dict[str, NodeInfo]
    slots: dict[str, tuple[int, ...]]

    @classmethod
    def find(cls, name: str, gpus: int | None, gpu_types: Sequence[str] | None) -> Machine:
        """Real GPUs unless types are named or there are none; then virtual slots."""
        if gpus is not None and gpus < 0:
            raise InputError(f"--gpus {gpus}: give a number from 0 up, or auto")
        kind: Literal["nvml", "virtual", "none"] = "virtual"
        if gpu_types is not None:
            if gpus not in (None, len(gpu_types)):
                raise InputError(f"{gpus} GPUs but {len(gpu_types)} types: name one type per GPU")
            found = [Gpu(index, gpu_type) for index, gpu_type in enumerate(gpu_types)]
        elif real := devices.find():
            kind = "nvml"
            if gpus is not None and gpus > len(real):
                raise InputError(f"--gpus {gpus}: this machine has {len(real)}; name types to get virtual ones")
            found = real[:gpus]
        else:
            found = [Gpu(index, "gpu") for index in range(gpus or 0)]
        by_type: dict[str, list[Gpu]] = {}
        for gpu in found:
            by_type.setdefault(gpu.gpu_type, []).append(gpu)
        if not by_type:
            return cls("none", {name: NodeInfo(name, "cpu", 0, *_host())}, {name: ()})
        nodes, slots = {}, {}
        cpus, mem_gib = _host()
        for gpu_type, members in by_type.items():
            node = name if len(by_type) == 1 else f"{name}-{gpu_type}"
            part = len(members) / len(found)  # the host is one: its cores and memory are dealt out, not sold twice
            nodes[node] = NodeInfo(node, gpu_type, len(members), max(1, int(cpus * part)), mem_gib * part)
            slots[node] = tuple(gpu.index for gpu in members)
        return cls(kind, nodes, slots)

    def gpu_env(self, gpus: Sequence[tuple[str, Sequence[int]]]) -> dict[str, str]:
        """What shows a job its GPUs and hides the others."""
        indexes = [self.slots[node][index] for node, chosen in gpus for index in chosen]
        env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, indexes)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if gpus:
            env["COTENANT_GPU_TYPE"] = self.nodes[gpus[0][0]].gpu_type
        return env | ({"COTENANT_VIRTUAL_GPUS": "1"} if self.gpu == "virtual" else {})


def _host() -> tuple[int, float]:
    fields = dict(line.split(":", 1) for line in text_of("/proc/meminfo").splitlines() if ":" in line)
    installed_gib = int(fields["MemTotal"].split()[0]) / 2**20
    return len(os.sched_getaffinity(0)), min(installed_gib, cgroups.memory_ceiling_gib())
