"""Slices of real GPUs: MIG instances, found and made through the driver's library (NVML).

An operator switches MIG mode on; nothing here does, for that may reset a GPU. Then every job gets an instance with the
shape and place that it was given: one that is there, or a new one in place of instances that nobody uses. Jobs see it
as their only device, by its UUID. The calls are those of NVIDIA's NVML API reference, "Multi Instance GPU Management".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cotenant.backends.base import BackendError

if TYPE_CHECKING:
    from cotenant.core.partitions import Partitions

_PROFILES = {"1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4}  # NVML_GPU_INSTANCE_PROFILE_n_SLICE, and of compute instances
_IN_USE = 19


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance with one compute instance: its number on the GPU, shape, first column, columns, and UUID."""

    number: int
    shape: str
    start: int
    columns: int
    uuid: str


class MigDriver(Protocol):
    """What is asked of the driver. GPUs are counted as NVML does."""

    def enabled(self, gpu: int) -> bool:
        """Whether MIG mode is on."""

    def instances(self, gpu: int) -> list[MigInstance]:
        """All instances of a GPU."""

    def create(self, gpu: int, shape: str, start: int, columns: int) -> MigInstance:
        """A new one; a `BackendError` where the driver does not make it."""

    def destroy(self, gpu: int, number: int) -> bool:
        """Remove one; False if somebody uses it."""


def provide(driver: MigDriver, gpu: int, table: Partitions, shape: int, start: int) -> str:
    """UUID of an instance of this shape (a number of the table) at this column, made if it is not there."""
    wanted = table.shapes[shape]
    there = driver.instances(gpu)
    for one in there:
        if (one.shape, one.start) == (wanted.name, start):
            return one.uuid
    for one in there:
        if wanted.mask(start) & ((1 << one.columns) - 1) << one.start and not driver.destroy(gpu, one.number):
            raise BackendError(f"MIG instance {one.number} of GPU {gpu} is in the way of a slice, and in use")
    return driver.create(gpu, wanted.name, start, wanted.columns).uuid


class _Placement(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


class _InstanceInfo(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p), ("id", ctypes.c_uint), ("profile", ctypes.c_uint), ("placement", _Placement),
    )  # fmt: skip


class _Profile(ctypes.Structure):
    """The beginning of both profile structures is the id; the rest is room for what the driver writes."""

    _fields_ = (("id", ctypes.c_uint), ("rest", ctypes.c_uint * 31))


class NvmlMig:
    """The driver's library, which is loaded and initialised by whoever makes this."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def enabled(self, gpu: int) -> bool:
        """Whether MIG mode is on."""
        now, later = ctypes.c_uint(), ctypes.c_uint()
        code = self._nvml.nvmlDeviceGetMigMode(self._device(gpu), ctypes.byref(now), ctypes.byref(later))
        return code == 0 and now.value == 1

    def instances(self, gpu: int) -> list[MigInstance]:
        """All instances of a GPU that have a MIG device."""
        device, uuids = self._device(gpu), self._uuids(gpu)
        found = [(shape, self._info(handle)) for shape, handle in self._handles(device)]
        return [
            MigInstance(info.id, shape, info.placement.start, info.placement.size, uuids[info.id])
            for shape, info in found
            if info.id in uuids
        ]

    def create(self, gpu: int, shape: str, start: int, columns: int) -> MigInstance:
        """A GPU instance with one compute instance over all of it."""
        device, profile, instance = self._device(gpu), _Profile(), ctypes.c_void_p()
        number, placement = _PROFILES[shape], _Placement(start, columns)
        self._do("nvmlDeviceGetGpuInstanceProfileInfo", device, number, ctypes.byref(profile))
        made = "nvmlDeviceCreateGpuInstanceWithPlacement"
        self._do(made, device, profile.id, ctypes.byref(placement), ctypes.byref(instance))
        info, compute = _Profile(), ctypes.c_void_p()
        try:
            self._do("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, number, 0, ctypes.byref(info))
            self._do("nvmlGpuInstanceCreateComputeInstance", instance, info.id, ctypes.byref(compute))
        except BackendError:
            self._nvml.nvmlGpuInstanceDestroy(instance)
            raise
        found = self._info(instance)
        return MigInstance(found.id, shape, start, columns, self._uuids(gpu)[found.id])

    def destroy(self, gpu: int, number: int) -> bool:
        """Remove an instance and what it computes with; False if somebody uses it."""
        for _, instance in self._handles(self._device(gpu)):
            if self._info(instance).id != number:
                continue
            for compute in self._computes(instance):
                if self._nvml.nvmlComputeInstanceDestroy(compute) == _IN_USE:
                    return False
            return bool(self._nvml.nvmlGpuInstanceDestroy(instance) == 0)
        return True

    def _device(self, gpu: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._do("nvmlDeviceGetHandleByIndex_v2", gpu, ctypes.byref(handle))
        return handle

    def _uuids(self, gpu: int) -> dict[int, str]:
        """UUIDs of MIG devices by the number of their GPU instance."""
        device, most, found = self._device(gpu), ctypes.c_uint(), {}
        self._do("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
        for index in range(most.value):
            handle, number, text = ctypes.c_void_p(), ctypes.c_uint(), ctypes.create_string_buffer(96)
            if self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index, ctypes.byref(handle)) == 0:
                self._do("nvmlDeviceGetGpuInstanceId", handle, ctypes.byref(number))
                self._do("nvmlDeviceGetUUID", handle, text, 96)
                found[number.value] = text.value.decode()
        return found

    def _handles(self, device: ctypes.c_void_p) -> list[tuple[str, ctypes.c_void_p]]:
        """GPU instances with their shapes."""
        found = []
        for shape, number in _PROFILES.items():
            profile = _Profile()
            if self._nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, ctypes.byref(profile)) == 0:
                listed = self._listed("nvmlDeviceGetGpuInstances", device, profile.id)
                found += [(shape, handle) for handle in listed]
        return found

    def _computes(self, instance: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        found = []
        for number in _PROFILES.values():
            info = _Profile()
            ask = self._nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
            if ask(instance, number, 0, ctypes.byref(info)) == 0:
                found += self._listed("nvmlGpuInstanceGetComputeInstances", instance, info.id)
        return found

    def _listed(self, call: str, owner: ctypes.c_void_p, profile: int) -> list[ctypes.c_void_p]:
        handles, count = (ctypes.c_void_p * 16)(), ctypes.c_uint()
        self._do(call, owner, profile, handles, ctypes.byref(count))
        return [ctypes.c_void_p(handle) for handle in handles[: count.value]]

    def _info(self, instance: ctypes.c_void_p) -> _InstanceInfo:
        info = _InstanceInfo()
        self._do("nvmlGpuInstanceGetInfo", instance, ctypes.byref(info))
        return info

    def _do(self, call: str, *arguments: Any) -> None:
        code = getattr(self._nvml, call)(*arguments)
        if code != 0:
            raise BackendError(f"the driver refuses a MIG slice: {call} says {code}")


def find(gpus: list[int]) -> NvmlMig | None:
    """The driver, if MIG mode is on on every one of these GPUs; None otherwise, and where there is no driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    driver = NvmlMig(nvml)
    return driver if gpus and all(driver.enabled(gpu) for gpu in gpus) else None
