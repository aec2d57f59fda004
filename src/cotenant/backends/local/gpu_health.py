"""Whether GPUs are well, asked of the driver's own library (NVML): errors that it reports, and GPUs that are gone.

* XID errors, as events since we look. Those that a program causes by itself (`_BY_PROGRAMS`) say nothing of the GPU:
  the list of NVIDIA's device plugin for Kubernetes.
* Uncorrected ECC errors since the driver was loaded, and rows of memory that wait for a reset to be remapped or could
  not be: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt.
* A GPU that has fallen off the bus.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

from cotenant.backends.local.machine import Machine
from cotenant.core.node_faults import NodeFault

LOOK_S = 5.0
_OK, _LOST = 0, 15
_XID_EVENTS = 0x8
_UNCORRECTED, _SINCE_LOADED = 1, 0
_BY_PROGRAMS = frozenset((13, 31, 43, 45, 68, 109))
_MOST_EVENTS = 1000  # that are read at one look


class _EventData(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p), ("kind", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint), ("part", ctypes.c_uint),
    )  # fmt: skip


class GpuHealth:
    """Asks the driver now and then; any thread may ask what it said. Of virtual GPUs nothing is wrong."""

    def __init__(self, machine: Machine, clock: Callable[[], float] = time.monotonic) -> None:
        self._machine, self._clock, self._lock = machine, clock, threading.Lock()
        self._nvml: ctypes.CDLL | None = None
        self._events = ctypes.c_void_p()
        self._listens: dict[int, int] = {}  # device -> its handle, once its events are listened to
        self._xids: dict[int, int] = {}  # device -> the newest error
        self._due_s, self._found = -1.0, dict[str, tuple[NodeFault, ...]]()

    def of(self, node: str) -> tuple[NodeFault, ...]:
        """What is wrong with the GPUs of a node."""
        if self._machine.gpu != "nvml":
            return ()
        with self._lock:
            if self._clock() >= self._due_s:
                self._found = self._look()
                self._due_s = self._clock() + LOOK_S
            return self._found.get(node, ())

    def _look(self) -> dict[str, tuple[NodeFault, ...]]:
        self._nvml = self._nvml or _opened()
        if self._nvml is None:
            return {}
        handles = {device: self._handle(device) for of in self._machine.slots.values() for device in of}
        self._hear(handles)
        return {
            node: tuple(fault for at, device in enumerate(of) for fault in self._faults(at, device, handles[device]))
            for node, of in self._machine.slots.items()
        }

    def _handle(self, device: int) -> tuple[int, ctypes.c_void_p]:
        """What asking for a device was answered with, and the device."""
        assert self._nvml is not None
        handle = ctypes.c_void_p()
        return self._nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)), handle

    def _hear(self, handles: dict[int, tuple[int, ctypes.c_void_p]]) -> None:
        """Read the errors that came since the last look; from the first look on."""
        nvml = self._nvml
        assert nvml is not None
        if not self._events and nvml.nvmlEventSetCreate(ctypes.byref(self._events)) != _OK:
            return
        for device, (answer, handle) in handles.items():
            if answer == _OK and device not in self._listens:
                nvml.nvmlDeviceRegisterEvents(handle, ctypes.c_ulonglong(_XID_EVENTS), self._events)
                self._listens[device] = handle.value or 0
        devices = {handle: device for device, handle in self._listens.items()}
        for _ in range(_MOST_EVENTS):
            event = _EventData()
            if nvml.nvmlEventSetWait_v2(self._events, ctypes.byref(event), 0) != _OK:
                return
            if event.kind == _XID_EVENTS and event.data not in _BY_PROGRAMS and (event.device or 0) in devices:
                self._xids[devices[event.device or 0]] = event.data

    def _faults(self, at: int, device: int, asked: tuple[int, ctypes.c_void_p]) -> list[NodeFault]:
        answer, handle = asked
        found = []
        if (xid := self._xids.get(device)) is not None:
            found.append(NodeFault("xid", f"the driver reported XID error {xid}", at, passes=False))
        errors, rows = ctypes.c_ulonglong(), [ctypes.c_uint() for _ in range(4)]
        nvml = self._nvml
        assert nvml is not None
        if answer == _OK:
            answer = nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _SINCE_LOADED, ctypes.byref(errors))
            if answer == _OK and errors.value:
                found.append(NodeFault("ecc", f"{errors.value} uncorrected ECC errors", at))
        if answer != _LOST and nvml.nvmlDeviceGetRemappedRows(handle, *map(ctypes.byref, rows)) == _OK:
            _, _, pending, failed = (row.value for row in rows)
            if pending or failed:
                state = "could not be remapped" if failed else "wait for a reset of the GPU to be remapped"
                found.append(NodeFault("remap", f"rows of its memory {state}", at))
        if answer == _LOST:
            found.append(NodeFault("lost", "the GPU is lost to the driver", at, passes=False))
        return found


def _opened() -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return nvml if nvml.nvmlInit_v2() == _OK else None
