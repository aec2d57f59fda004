"""GPUs that are not well, from a driver's library that is not one; and what a service on that machine does about it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cotenant.backends.base import NodeInfo
from cotenant.backends.local import LocalBackend, gpu_health
from cotenant.backends.local import gpus as devices
from cotenant.backends.local.gpu_health import GpuHealth
from cotenant.backends.local.gpus import Gpu
from cotenant.backends.local.machine import Machine
from cotenant.core.jobspec import parse_job
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role

ADMIN = Caller("root", Role.ADMIN)
MACHINE = Machine("nvml", {"n0": NodeInfo("n0", "h200", 2, 8, 64.0)}, {"n0": (2, 5)})


class Driver:
    """Answers as NVML does, for any device; what is wrong is set from outside, by device."""

    def __init__(self) -> None:
        self.ecc: dict[int, int] = {}
        self.pending: set[int] = set()
        self.lost: set[int] = set()
        self.xids: list[tuple[int, int]] = []

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, device: int, handle: Any) -> int:
        handle._obj.value = device + 1
        return 15 if device in self.lost else 0

    def nvmlEventSetCreate(self, found: Any) -> int:
        found._obj.value = 99
        return 0

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, events: Any) -> int:
        assert kinds.value == 8
        return 0

    def nvmlEventSetWait_v2(self, events: Any, event: Any, timeout_ms: int) -> int:
        if not self.xids:
            return 10
        device, xid = self.xids.pop(0)
        event._obj.device, event._obj.kind, event._obj.data = device + 1, 8, xid
        return 0

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, error: int, counter: int, count: Any) -> int:
        assert (error, counter) == (1, 0)
        count._obj.value = self.ecc.get(handle.value - 1, 0)
        return 0

    def nvmlDeviceGetRemappedRows(self, handle: Any, one: Any, other: Any, pending: Any, failed: Any) -> int:
        pending._obj.value = handle.value - 1 in self.pending
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        return 3


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(gpu_health, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": lambda name: made}))
    monkeypatch.setattr(gpu_health, "LOOK_S", 0.0)
    return made


def test_errors_of_the_driver_become_faults_of_gpus(driver: Driver) -> None:
    health = GpuHealth(MACHINE)
    assert health.of("n0") == ()
    driver.ecc[5] = 2
    driver.pending.add(2)
    driver.xids += [(2, 31), (5, 48)]
    found = {(fault.gpu, fault.kind): fault for fault in health.of("n0")}
    assert set(found) == {(0, "remap"), (1, "xid"), (1, "ecc")}, "XID 31 is a program's own"
    assert "XID error 48" in found[1, "xid"].why
    assert "2 uncorrected" in found[1, "ecc"].why
    driver.ecc.clear()
    driver.pending.clear()
    assert [fault.kind for fault in health.of("n0")] == ["xid"], "nobody takes an XID back"
    driver.lost.add(2)
    assert [(fault.gpu, fault.kind) for fault in health.of("n0")] == [(0, "lost"), (1, "xid")]


def test_virtual_gpus_and_machines_without_a_driver_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GpuHealth(Machine("virtual", MACHINE.nodes, MACHINE.slots)).of("n0") == ()

    def none(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gpu_health, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": none}))
    assert GpuHealth(MACHINE).of("n0") == ()


@pytest.fixture
def service(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreService]:
    monkeypatch.setattr(devices, "find", lambda: [Gpu(0, "h200", mem_gib=140.0), Gpu(1, "h200", mem_gib=140.0)])
    backend = LocalBackend(tmp_path / "jobs", home=tmp_path)
    made = CoreService(MemoryJournal(MemoryStore(), clock=time.time), backend, home=tmp_path, grace_s=2.0, inline=True)
    made.reconcile()
    yield made
    for one in backend.observe():
        backend.kill(one.key)
    made.close()


def until(service: CoreService, happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not happens():
        assert time.monotonic() < deadline
        service.backend.wait_change(min(service.tick(), 0.1))


def test_a_job_leaves_a_gpu_with_ecc_errors_for_the_other_one(service: CoreService, driver: Driver) -> None:
    ((job,),) = service.desk.submit(ADMIN, [parse_job({"run": "sleep 600"})])
    until(service, lambda: service.desk.job(ADMIN, job).state == "running")
    ((node, (bad,)),) = service.desk.job(ADMIN, job).attempts[0].nodes
    driver.ecc[bad] = 1
    until(service, lambda: len(service.desk.job(ADMIN, job).attempts) == 2)
    first, second = service.desk.job(ADMIN, job).attempts
    assert "1 uncorrected ECC errors" in first.why
    assert second.nodes == ((node, (1 - bad,)),)
    (status,) = service.admin.nodes(ADMIN)
    assert (status.gpus_out, status.faults[0]["kind"]) == (1, "ecc")
