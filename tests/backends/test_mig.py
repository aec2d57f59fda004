"""MIG instances through a driver's library that is played here: same calls, same structures, no GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from cotenant.backends.base import BackendError, LaunchSpec
from cotenant.backends.local.machine import Machine, parse_slices
from cotenant.backends.local.mig import MigInstance, NvmlMig, provide
from cotenant.core.partitions import mig

SLICES = {0: (1, 1), 1: (2, 2), 2: (3, 4), 3: (4, 4), 4: (7, 8)}  # profile -> compute, columns


class FakeNvml:
    """One GPU in MIG mode; handles are numbers: 1 is the GPU, 100 + n an instance, 200 + n its compute instance, and
    300 + n its MIG device. Out parameters come as `byref`, as the real library gets them."""

    def __init__(self) -> None:
        self.mode, self.placed, self.computes, self.used = 1, dict[int, tuple[int, int, int]](), set[int](), set[int]()
        self.calls: list[str] = []
        self.made = 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = 1
        return 0 if index == 0 else 2

    def nvmlDeviceGetMigMode(self, device: Any, now: Any, later: Any) -> int:
        now._obj.value = later._obj.value = self.mode
        return 0

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device: Any, profile: int, info: Any) -> int:
        info._obj.id = 10 + profile
        return 0

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device: Any, profile: int, where: Any, instance: Any) -> int:
        start, size = where._obj.start, where._obj.size
        for _, first, wide in self.placed.values():
            if start < first + wide and first < start + size:
                return 20  # insufficient resources
        self.made = number = self.made + 1
        self.placed[number] = profile, start, size
        instance._obj.value = 100 + number
        self.calls.append(f"create {SLICES[profile - 10][0]}g@{start}")
        return 0 if SLICES[profile - 10][1] == size else 2

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, instance: Any, profile: int, engine: int, info: Any) -> int:
        info._obj.id = 20 + profile
        return 0

    def nvmlGpuInstanceCreateComputeInstance(self, instance: Any, profile: int, compute: Any) -> int:
        self.computes.add(instance.value - 100)
        compute._obj.value = instance.value + 100
        return 0

    def nvmlDeviceGetGpuInstances(self, device: Any, profile: int, out: Any, count: Any) -> int:
        return self._list([100 + n for n, (mine, _, _) in self.placed.items() if mine == profile], out, count)

    def nvmlGpuInstanceGetComputeInstances(self, instance: Any, profile: int, out: Any, count: Any) -> int:
        number = instance.value - 100
        mine = number in self.computes and self.placed[number][0] + 10 == profile
        return self._list([200 + number] if mine else [], out, count)

    @staticmethod
    def _list(found: list[int], out: Any, count: Any) -> int:
        for at, handle in enumerate(found):
            out[at] = handle
        count._obj.value = len(found)
        return 0

    def nvmlGpuInstanceGetInfo(self, instance: Any, info: Any) -> int:
        number = instance.value - 100
        info._obj.id = number
        info._obj.placement.start, info._obj.placement.size = self.placed[number][1:]
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:
        count._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int, handle: Any) -> int:
        there = sorted(self.computes)
        if index >= len(there):
            return 6  # not found
        handle._obj.value = 300 + there[index]
        return 0

    def nvmlDeviceGetGpuInstanceId(self, device: Any, number: Any) -> int:
        number._obj.value = device.value - 300
        return 0

    def nvmlDeviceGetUUID(self, device: Any, text: ctypes.Array[Any], size: int) -> int:
        text.value = f"MIG-{device.value - 300}".encode()
        return 0

    def nvmlComputeInstanceDestroy(self, compute: Any) -> int:
        number = compute.value - 200
        if number in self.used:
            return 19
        self.computes.discard(number)
        return 0

    def nvmlGpuInstanceDestroy(self, instance: Any) -> int:
        self.calls.append(f"destroy {instance.value - 100}")
        del self.placed[instance.value - 100]
        return 0


def test_an_instance_is_found_made_or_made_room_for() -> None:
    nvml, table = FakeNvml(), mig("h200")
    driver = NvmlMig(nvml)
    assert driver.enabled(0)
    assert provide(driver, 0, table, 1, 0) == "MIG-1"
    assert provide(driver, 0, table, 2, 4) == "MIG-2"
    assert driver.instances(0) == [MigInstance(1, "2g", 0, 2, "MIG-1"), MigInstance(2, "3g", 4, 4, "MIG-2")]
    assert provide(driver, 0, table, 1, 0) == "MIG-1"  # it is there
    nvml.used = {2}
    assert provide(driver, 0, table, 2, 0) == "MIG-3"  # in place of the first, which nobody uses
    assert provide(driver, 0, table, 3, 0) == "MIG-4"  # as many columns, more compute: another one
    made = ["create 2g@0", "create 3g@4", "destroy 1", "create 3g@0", "destroy 3", "create 4g@0"]
    assert nvml.calls == made
    with pytest.raises(BackendError, match="MIG instance 2 of GPU 0 is in the way of a slice, and in use"):
        provide(driver, 0, table, 1, 4)
    nvml.mode = 0
    assert not driver.enabled(0)


def test_a_job_sees_its_instance_and_nothing_else() -> None:
    driver = NvmlMig(FakeNvml())
    machine = Machine.find("local", None, ["h200"], slices="mig")
    machine = machine.with_mig(driver)
    table = machine.nodes["local"].slices
    assert table is not None
    assert not table.timed
    assert parse_slices("mig", "h200").timed  # unless the driver has it on
    here = (("local", (0,)),)
    spec = LaunchSpec("a-1", "a", gpus=here, slice=(2, 4))
    assert machine.gpu_env(spec.gpus, None, spec.slice)["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    assert machine.gpu_env(here)["CUDA_VISIBLE_DEVICES"] == "MIG-2"  # all of it is an instance, too
    with pytest.raises(BackendError, match="GPUs in MIG mode do not work together"):
        machine.gpu_env((("local", (0, 0)),))
