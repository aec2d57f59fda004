"""What GPUs and jobs use, from a driver's library that is not one."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cotenant.backends.base import GpuUse, JobUse, Measures, NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.backends.local import LocalBackend, gpu_use
from cotenant.backends.local.machine import Machine
from cotenant.service.observer.usage import Usage

NODE = NodeInfo("n0", "h200", 1, 8, 64.0)
MACHINE = Machine("nvml", {"n0": NODE}, {"n0": (3,)})


class Driver:
    """Answers as NVML does: one device, a process of ours, one of nobody's, and one of another name space."""

    def __init__(self, per_process: bool) -> None:
        self.per_process = per_process

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, device: int, handle: Any) -> int:
        return 0 if device == 3 else 6

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu = 80
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.used = 30 * 2**30
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, rows: Any) -> int:
        for at, pid in enumerate((os.getpid(), 1, 2**22 + 1)):
            rows[at].pid, rows[at].used = pid, 10 * 2**30
        count._obj.value = 3
        return 0

    def nvmlDeviceGetProcessUtilization(self, handle: Any, rows: Any, count: Any, since: Any) -> int:
        if not self.per_process:
            return 3
        rows[0].pid, rows[0].sm, rows[0].at_us = os.getpid(), 60, since.value + 5
        count._obj.value = 1
        return 0


@pytest.fixture(params=[True, False], ids=["per process", "whole GPUs"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(request.param)
    monkeypatch.setattr(gpu_use, "ctypes", SimpleNamespace(**{**vars(ctypes), "CDLL": lambda name: made}))
    marks = {"COTENANT_MARK": "label/7-1"}
    monkeypatch.setattr(gpu_use.procs, "environment", lambda pid: marks if pid == os.getpid() else {})
    return made


def test_a_process_belongs_to_the_job_whose_mark_it_carries(driver: Driver) -> None:
    meter = gpu_use.GpuMeter(MACHINE, "label")
    for _ in range(2):
        (gpu,) = meter.sample()
        assert (gpu.node, gpu.index, gpu.busy, gpu.used_gib) == ("n0", 0, 0.8, 30.0)
        (mine,) = gpu.jobs
        assert (mine.key, mine.used_gib) == ("7-1", 10.0)
        assert mine.busy == 0.6 if driver.per_process else math.isnan(mine.busy)
    assert gpu_use.GpuMeter(MACHINE, "other").sample()[0].jobs == ()


def test_nothing_is_known_of_virtual_gpus(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, gpus=2, gpu_types=["v100", "v100"])
    assert isinstance(backend, Measures)
    assert backend.gpu_use() == ()
    assert not Usage(backend).sample()
    assert not Usage().sample()
    backend.close()


def test_whose_it_is_where_nobody_can_tell() -> None:
    backend = FakeBackend((NODE,))
    usage = Usage(backend)
    job: Any = SimpleNamespace(key="7-1", last=SimpleNamespace(devices=(("n0", (0,)),)))
    usage.take((GpuUse("n0", 0, 0.8, 30.0, (JobUse("7-1", math.nan, 10.0),)),))
    assert usage.of(job, True) == JobUse("7-1", 0.8, 30.0), "alone all of it is its own"
    assert usage.of(job, False) is None
    usage.take((GpuUse("n0", 0, 0.8, 30.0, (JobUse("7-1", 0.6, 10.0),)),))
    assert usage.of(job, False) == JobUse("7-1", 0.6, 10.0)
    usage.take(())
    assert usage.of(job, True) is None
