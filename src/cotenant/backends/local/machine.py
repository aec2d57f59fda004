"""What this machine has to give: GPUs real or virtual, cores, memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Literal

from cotenant.backends.base import BackendError, NodeInfo
from cotenant.backends.local import cgroups, mig, mps
from cotenant.backends.local import gpus as devices
from cotenant.backends.local.gpus import Gpu
from cotenant.backends.local.keeper_files import text_of
from cotenant.backends.local.mig import MigDriver, provide
from cotenant.core.errors import InputError

if TYPE_CHECKING:
    from cotenant.core.partitions import Partitions

VIRTUAL_GPU_GIB = 80.0
_HERE = "localhost"  # all nodes are this machine: a gang over several of them is one process that sees all its GPUs
Share = Literal["time", "mps"]
"""How processes on one GPU share it: by turns, as the driver does by itself, or at once through NVIDIA's MPS."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes by name (one per GPU type) and, for each, the device behind every GPU index."""

    gpu: Literal["nvml", "virtual", "none"]
    nodes: dict[str, NodeInfo]
    slots: dict[str, tuple[int, ...]]
    share: Share = "time"
    minors: Mapping[int, int] = field(default_factory=dict)  # of real GPUs: the number of the device file
    mig: MigDriver | None = None  # that makes slices, where MIG mode is on

    @classmethod
    def find(
        cls, name: str, gpus: int | None, gpu_types: Sequence[str] | None, share: Share = "time", slices: str = ""
    ) -> Machine:  # fmt: skip
        """Real GPUs unless types are named or there are none; then virtual slots."""
        if gpus is not None and gpus < 0:
            raise InputError(f"--gpus {gpus}: give a number from 0 up, or auto")
        kind: Literal["nvml", "virtual", "none"] = "virtual"
        if gpu_types is not None:
            if gpus not in (None, len(gpu_types)):
                raise InputError(f"{gpus} GPUs but {len(gpu_types)} types: name one type per GPU")
            found = [Gpu(index, gpu_type, mem_gib=_virtual_gib()) for index, gpu_type in enumerate(gpu_types)]
        elif real := devices.find():
            kind = "nvml"
            if gpus is not None and gpus > len(real):
                raise InputError(f"--gpus {gpus}: this machine has {len(real)}; name types to get virtual ones")
            found = real[:gpus]
        else:
            found = [Gpu(index, "gpu", mem_gib=_virtual_gib()) for index in range(gpus or 0)]
        by_type: dict[str, list[Gpu]] = {}
        for gpu in found:
            by_type.setdefault(gpu.gpu_type, []).append(gpu)
        if not by_type:
            only = NodeInfo(name, "cpu", 0, *_host(), address=_HERE)
            return cls("none", {name: only}, {name: ()}, share)
        nodes, slots = {}, {}
        cpus, mem_gib = _host()
        for gpu_type, members in by_type.items():
            node = name if len(by_type) == 1 else f"{name}-{gpu_type}"
            part = len(members) / len(found)  # the host is one: its cores and memory are dealt out, not sold twice
            nodes[node] = NodeInfo(
                node, gpu_type, len(members), max(1, int(cpus * part)), mem_gib * part,
                gpu_mem_gib=min(gpu.mem_gib for gpu in members), address=_HERE,
                slices=parse_slices(slices, gpu_type) if slices else None,
            )  # fmt: skip
            slots[node] = tuple(gpu.index for gpu in members)
        minors = {gpu.index: gpu.minor for gpu in found} if kind == "nvml" else {}
        machine = cls(kind, nodes, slots, share, minors)
        driver = mig.find([gpu.index for gpu in found]) if kind == "nvml" and slices == "mig" else None
        return machine if driver is None else machine.with_mig(driver)

    def with_mig(self, driver: MigDriver) -> Machine:
        """The same with slices that the hardware keeps apart."""
        from cotenant.core.partitions import mig as shapes_of

        nodes = {name: replace(node, slices=shapes_of(node.gpu_type)) for name, node in self.nodes.items()}
        return replace(self, nodes=nodes, mig=driver)

    @property
    def virtual(self) -> frozenset[int]:
        """Numbers of the GPUs that are not real."""
        return frozenset(i for chosen in self.slots.values() for i in chosen) if self.gpu == "virtual" else frozenset()

    def indexes(self, gpus: Sequence[tuple[str, Sequence[int]]]) -> list[int]:
        """The devices behind GPUs that are named by node."""
        return [self.slots[node][index] for node, chosen in gpus for index in chosen]

    def renumbered(self, indexes: Sequence[int]) -> dict[str, str]:
        """For a job that sees no other devices than its own: the driver counts those only."""
        if self.gpu != "nvml":
            return {}
        own = sorted(indexes)
        return {"CUDA_VISIBLE_DEVICES": ",".join(str(own.index(index)) for index in indexes)}

    def gpu_env(
        self, gpus: Sequence[tuple[str, Sequence[int]]], mem_gib: float | None = None, cut: tuple[int, int] = (0, 0)
    ) -> dict[str, str]:
        """What shows a job its GPUs and hides the others, and says how much of their memory it may use.

        `cut` is the slice that it has of its one GPU, as in `LaunchSpec`.
        """
        indexes, named = self.indexes(gpus), {}
        table = self.nodes[gpus[0][0]].slices if gpus and cut[0] else None
        if table is not None:
            shape = table.shapes[cut[0] - 1]
            named = {"COTENANT_SLICE": shape.name, "COTENANT_SLICE_COLUMN": str(cut[1])}
            mem_gib = min(mem_gib or inf, shape.memory * self.nodes[gpus[0][0]].gpu_mem_gib)
        shown = self._instance(indexes, cut) if self.mig is not None else ",".join(map(str, indexes))
        env = {"CUDA_VISIBLE_DEVICES": shown, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if gpus:
            env["COTENANT_GPU_TYPE"] = self.nodes[gpus[0][0]].gpu_type
        if gpus and mem_gib is not None:
            env["COTENANT_GPU_MEM_GIB"] = f"{mem_gib:g}"
            if self.share == "mps":
                env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = mps.memory_limit(len(indexes), mem_gib)
        return env | named | ({"COTENANT_VIRTUAL_GPUS": "1"} if self.gpu == "virtual" else {})

    def _instance(self, indexes: Sequence[int], cut: tuple[int, int]) -> str:
        """The MIG instance of a job, by its UUID; all of a GPU is one, too."""
        if len(indexes) != 1 or self.mig is None:
            if not indexes:
                return ""
            raise BackendError(f"{len(indexes)} GPUs in MIG mode do not work together: switch it off for larger jobs")
        table = next(node.slices for name, node in self.nodes.items() if indexes[0] in self.slots[name])
        assert table is not None
        shape, column = (cut[0] - 1, cut[1]) if cut[0] else (table.whole, 0)
        return provide(self.mig, indexes[0], table, shape, column)


def parse_gpus(text: str) -> int | list[str] | None:
    """`4` is a number of GPUs; `v100:2,p100:2` the type of each virtual one; `auto` all that are there."""
    text = text.strip("[]")
    if text == "auto":
        return None
    if re.fullmatch(r"[0-9]{1,6}", text):
        return int(text)
    types: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([A-Za-z0-9][\w.-]{0,62}):([0-9]{1,4})", part.strip(), re.ASCII)
        if match is None or match[1] in types or int(match[2]) < 1:
            raise InputError(f"--gpus {text}: write a number from 0 up, types as in v100:2,p100:2, or auto")
        types += [match[1]] * int(match[2])
    return types


def parse_slices(text: str, gpu_type: str) -> Partitions:
    """`mig`, or sizes in columns such as `1/2/4/8`: slices of the GPUs here, as shares of time and limits of memory."""
    from cotenant.core.partitions import mig as shapes_of
    from cotenant.core.partitions import read_partitions

    where, sizes = f"backend 'local': slices={text}", text.strip("[]").split("/")
    if text == "mig":
        return replace(shapes_of(gpu_type, where), timed=True, restarts=False, reconfigure_s=0.0)
    if not all(re.fullmatch(r"[0-9]{1,3}", size) for size in sizes):
        raise InputError(f"{where}: write mig, or sizes in columns such as 1/2/4/8")
    columns = [int(size) for size in sizes]
    data = {"columns": max(columns), "sizes": columns, "reconfigure": 0}
    return replace(read_partitions(where, data, gpu_type), timed=True)


def _virtual_gib() -> float:
    """Memory of a virtual GPU, as the operator says."""
    text = os.environ.get("COTENANT_VIRTUAL_GPU_MEM", "")
    try:
        size = float(text) if text else VIRTUAL_GPU_GIB
    except ValueError:
        size = 0.0
    if not 0 < size < 1e6:
        raise InputError(f"COTENANT_VIRTUAL_GPU_MEM is '{text}': write GiB as a number above 0")
    return size


def _host() -> tuple[int, float]:
    fields = dict(line.split(":", 1) for line in text_of("/proc/meminfo").splitlines() if ":" in line)
    installed_gib = int(fields["MemTotal"].split()[0]) / 2**20
    return len(os.sched_getaffinity(0)), min(installed_gib, cgroups.memory_ceiling_gib())
