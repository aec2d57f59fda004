"""What a command uses while it runs: memory and busy time of its GPUs (NVML), cores and memory of the host (/proc).

GPUs are read as a whole, against what was in use before: whoever profiles has them for himself.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from cotenant.backends.local.procs import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_GIB = os.sysconf("SC_PAGE_SIZE") / 2**30


class _Used(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _GpuGauge(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class GpuGauge:
    """GPUs by their numbers in the driver's order. `works` is False where there is no driver to ask."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._handles: list[ctypes.c_void_p] = []
        self._nvml: ctypes.CDLL | None = None
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            found = nvml.nvmlInit_v2() == 0
        except OSError:
            found = False
        if found and indexes:
            self._nvml = nvml
            for index in indexes:
                handle = ctypes.c_void_p()
                if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                    self._handles.append(handle)
        self.before_gib = self.used_gib()
        self._busy: list[tuple[float, float]] = []

    @property
    def works(self) -> bool:
        """Whether it can tell anything."""
        return bool(self._handles)

    def used_gib(self) -> float:
        """Memory in use on the fullest of the GPUs, NaN where nobody can tell."""
        used = []
        for handle in self._handles:
            memory = _Used()
            if self._nvml is not None and self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                used.append(memory.used / 2**30)
        return max(used, default=math.nan)

    def own_gib(self) -> float:
        """The same without what was in use before."""
        return max(self.used_gib() - self.before_gib, 0.0) if self.works else math.nan

    def sample(self) -> None:
        """Take a look at how busy the GPUs are."""
        for handle in self._handles:
            rates = _GpuGauge()
            if self._nvml is not None and self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0:
                self._busy.append((time.time(), rates.gpu / 100))

    def busy_since(self, since_s: float) -> float:
        """The mean over the looks from a moment on, NaN where there were none."""
        looks = [busy for at, busy in self._busy if at >= since_s]
        return sum(looks) / len(looks) if looks else math.nan


def cpu_seconds(pid: int) -> float:
    """CPU time that a process and its descendants have used; those that ended count where somebody waited for them."""
    total = 0
    for one in {pid} | descendants(pid):
        fields = _fields(one, "stat")
        if len(fields) > 14:
            total += sum(int(fields[at]) for at in (11, 12, 13, 14))  # utime, stime, and those of ended children
    return total / _TICKS


def memory_gib(pid: int) -> float:
    """Memory of a process and its descendants; pages that they share count once."""
    own, shared = 0, 0
    for one in {pid} | descendants(pid):
        fields = _fields(one, "statm")
        if len(fields) > 2:
            own, shared = own + int(fields[1]) - int(fields[2]), max(shared, int(fields[2]))
    return (own + shared) * _PAGE_GIB


def _fields(pid: int, name: str) -> list[str]:
    """The numbers of a line of /proc, after the name of the program where it has one."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
