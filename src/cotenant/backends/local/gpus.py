"""GPUs of this machine, asked of the driver's own library (NVML) and of nothing that must be installed."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass

_VENDOR = {"nvidia", "geforce", "tesla"}
_SERIES = {"rtx", "gtx", "titan", "quadro"}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device: its number in PCI order (what CUDA_VISIBLE_DEVICES takes) and its short type, such as h200."""

    index: int
    gpu_type: str
    uuid: str = ""
    mem_gib: float = 0.0
    minor: int = -1  # of its device file, /dev/nvidiaN; -1 where there is none


class DeviceMemory(ctypes.Structure):
    """Bytes, as NVML tells them."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def short_type(name: str) -> str:
    """`NVIDIA H200` is h200, `Tesla V100-SXM2-16GB` v100, `NVIDIA GeForce RTX 4090` rtx4090."""
    words = [w for w in re.split(r"[\s\-_/]+", name.lower()) if w and w not in _VENDOR]
    if not words:
        return "gpu"
    return "".join(words[: 2 if words[0] in _SERIES else 1])


def find() -> list[Gpu]:
    """All devices the driver shows, reduced to CUDA_VISIBLE_DEVICES where we ourselves are confined; [] without."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        return _confine(_list(nvml), os.environ.get("CUDA_VISIBLE_DEVICES"))
    finally:
        nvml.nvmlShutdown()


def _list(nvml: ctypes.CDLL) -> list[Gpu]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    gpus = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        name = ctypes.create_string_buffer(96)
        uuid = ctypes.create_string_buffer(96)
        memory, minor = DeviceMemory(), ctypes.c_uint()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        nvml.nvmlDeviceGetName(handle, name, 96)
        nvml.nvmlDeviceGetUUID(handle, uuid, 96)
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        device = minor.value if nvml.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor)) == 0 else index
        gpus.append(Gpu(index, short_type(name.value.decode()), uuid.value.decode(), memory.total / 2**30, device))
    return gpus


def _confine(gpus: list[Gpu], visible: str | None) -> list[Gpu]:
    if visible is None:
        return gpus
    chosen: list[Gpu] = []
    for word in visible.split(","):
        word = word.strip()
        match = [g for g in gpus if str(g.index) == word or (word.startswith("GPU-") and g.uuid.startswith(word))]
        if not match:
            break  # as CUDA does: what follows an unknown entry is not seen
        chosen += match[:1]
    return chosen
