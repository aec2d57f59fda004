"""What the GPUs of this machine do just now, asked of the driver's own library (NVML).

Busy is the share of the last fraction of a second in which a kernel was resident, whatever part of the GPU it used. By
process the driver knows it too, but not everywhere, and within a container process numbers may be those of the host:
then only whole GPUs are known. A process belongs to the job whose mark its environment carries.
"""

from __future__ import annotations

import ctypes
import math

from cotenant.backends.base import GpuUse, JobUse
from cotenant.backends.local import procs
from cotenant.backends.local.gpus import DeviceMemory
from cotenant.backends.local.keeper_files import start_ticks
from cotenant.backends.local.machine import Machine

_MOST = 64  # processes on one GPU that are looked at
_GIB = 2**30
_UNKNOWN = 2**64 - 1  # bytes of a process, where the driver does not say


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("part", ctypes.c_uint),
    )  # fmt: skip


class _Busy(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint), ("at_us", ctypes.c_ulonglong), ("sm", ctypes.c_uint), ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint), ("decoder", ctypes.c_uint),
    )  # fmt: skip


class GpuMeter:
    """Asks the driver, which is opened at the first question and stays open. `label` marks the jobs of this service."""

    def __init__(self, machine: Machine, label: str) -> None:
        self._machine, self._mark = machine, f"{label}/"
        self._nvml: ctypes.CDLL | None = None
        self._seen_us: dict[int, int] = {}  # by device: until when busy shares of processes have been read
        self._keys: dict[tuple[int, int], str] = {}  # a process and its start -> attempt, empty for strangers

    def sample(self) -> tuple[GpuUse, ...]:
        """Every GPU; none where they are virtual or there is no driver."""
        if self._machine.gpu != "nvml" or not self._open():
            return ()
        slots = self._machine.slots.items()
        found = (self._one(node, at, device) for node, devices in slots for at, device in enumerate(devices))
        return tuple(one for one in found if one is not None)

    def _open(self) -> bool:
        if self._nvml is None:
            try:
                nvml = ctypes.CDLL("libnvidia-ml.so.1")
            except OSError:
                return False
            if nvml.nvmlInit_v2() != 0:
                return False
            self._nvml = nvml
        return True

    def _one(self, node: str, index: int, device: int) -> GpuUse | None:
        nvml = self._nvml
        assert nvml is not None
        handle, rates, memory = ctypes.c_void_p(), _Rates(), DeviceMemory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)) != 0:
            return None
        if nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) != 0:
            return None
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        busy = self._busy(nvml, handle, device)
        used_gib: dict[str, float] = {}
        shares: dict[str, float] = {}
        for pid, used in self._processes(nvml, handle).items():
            if key := self._key(pid):
                used_gib[key] = used_gib.get(key, 0.0) + used / _GIB
                shares[key] = shares.get(key, 0.0) + busy.get(pid, 0.0)
        known = bool(busy)
        jobs = tuple(JobUse(key, min(shares[key], 1.0) if known else math.nan, gib) for key, gib in used_gib.items())
        return GpuUse(node, index, rates.gpu / 100, memory.used / _GIB, jobs)

    @staticmethod
    def _processes(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> dict[int, int]:
        """Bytes by process, clients of MPS included."""
        found: dict[int, int] = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"):
            ask = getattr(nvml, name, None)
            count, rows = ctypes.c_uint(_MOST), (_Process * _MOST)()
            if ask is not None and ask(handle, ctypes.byref(count), rows) == 0:
                found |= {row.pid: 0 if row.used == _UNKNOWN else row.used for row in rows[: count.value]}
        return found

    def _busy(self, nvml: ctypes.CDLL, handle: ctypes.c_void_p, device: int) -> dict[int, float]:
        """Busy share by process, since this was asked last."""
        count, rows = ctypes.c_uint(_MOST), (_Busy * _MOST)()
        since = ctypes.c_ulonglong(self._seen_us.get(device, 0))
        ask = getattr(nvml, "nvmlDeviceGetProcessUtilization", None)
        if ask is None or ask(handle, rows, ctypes.byref(count), since) != 0:
            return {}
        seen = [row for row in rows[: count.value] if row.at_us]
        self._seen_us[device] = max([self._seen_us.get(device, 0), *(row.at_us for row in seen)])
        return {row.pid: row.sm / 100 for row in sorted(seen, key=lambda row: row.at_us)}

    def _key(self, pid: int) -> str:
        """The attempt that a process belongs to; empty where it is none of ours."""
        try:
            who = pid, start_ticks(pid)
        except (IndexError, ValueError):  # it has ended, or its number is that of another name space
            return ""
        if who not in self._keys:
            if len(self._keys) > 100 * _MOST:
                self._keys.clear()
            mark = procs.environment(pid).get("COTENANT_MARK", "")
            self._keys[who] = mark.removeprefix(self._mark) if mark.startswith(self._mark) else ""
        return self._keys[who]
