"""Slices in the live service: each job is launched in its own, they change as jobs come and go, and survive a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import NodeInfo
from cotenant.backends.local import LocalBackend
from cotenant.backends.local.machine import Machine, parse_slices
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, parse_job

CUT = (NodeInfo("n0", "gpu", 1, 8, 64.0, gpu_mem_gib=80.0, slices=parse_slices("1/2/4/8", "gpu")),)


def slices(rig: Rig, *jobs: str) -> list[tuple[int, int]]:
    """(shape from 1, column) of each, as the book has it."""
    return [rig.service.store.book.jobs[job].last.slice for job in jobs]


def test_jobs_run_in_the_slices_that_they_ask_for_and_keep_them_over_a_crash(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "slices", CUT)
    rig.shares = rig.in_parts = True
    first = [rig.submit("sleep 40", slice="2/8") for _ in range(2)]
    half = rig.submit("sleep 20", slice="4")
    rig.ticks(3)
    assert [rig.state(job) for job in (*first, half)] == ["running"] * 3
    had = slices(rig, *first, half)
    assert sorted(had) == [(2, 0), (2, 2), (3, 4)] or sorted(had) == [(2, 4), (2, 6), (3, 0)]
    told = [rig.backend.launched(f"{job}-1") for job in (*first, half)]
    assert [spec.slice for spec in told if spec is not None] == had
    rig.restart()
    waits = rig.submit("sleep 10", slice="4")
    rig.ticks(5)
    assert slices(rig, *first, half) == had
    assert rig.state(waits) == "pending"
    assert "it needs a slice 4 of 1 GPU" in str(rig.service.desk.why(ADMIN, waits))
    rig.finish()
    assert slices(rig, waits) == [had[2]]
    assert rig.attempts(*first, half, waits) == [1] * 4


def test_slices_change_under_running_jobs_and_the_change_survives_a_crash(tmp_path: Path) -> None:
    """One has all of the GPU, gives half of it to another, and has all of it again when that has ended."""
    rig = Rig(tmp_path, "slices", CUT)
    rig.shares = rig.in_parts = True
    long = rig.submit("sleep 400", expected=400)
    rig.ticks(3)
    assert slices(rig, long) == [(0, 0)]
    short = rig.submit("sleep 20", expected=20)
    rig.ticks(3)
    assert sorted(slices(rig, long, short)) == [(3, 0), (3, 4)]
    both = slices(rig, long, short)
    rig.restart()
    rig.ticks(3)
    assert slices(rig, long, short) == both
    rig.ticks(30)
    assert (rig.state(short), slices(rig, long)) == ("succeeded", [(0, 0)])
    assert rig.attempts(long) == [1]


def test_a_process_is_told_its_slice(tmp_path: Path) -> None:
    machine = Machine.find("local", None, ["h200"], slices="mig")
    env = machine.gpu_env((("local", (0,)),), None, (2, 4))
    assert (env["COTENANT_SLICE"], env["COTENANT_SLICE_COLUMN"], env["COTENANT_GPU_MEM_GIB"]) == ("2g", "4", "20")
    assert "COTENANT_SLICE" not in machine.gpu_env((("local", (0,)),))
    with pytest.raises(InputError, match="slices=half: write mig, or sizes in columns"):
        LocalBackend.open(tmp_path, gpus="[h200:1]", slices="half")


def test_a_job_says_which_slice_it_wants() -> None:
    spec = parse_job({"run": "x", "slice": "2/7"})
    assert JobSpec.from_dict(spec.as_dict()) == spec
    assert spec.slice == "2/7"
    with pytest.raises(InputError, match="field 'slice' is '2g' of 2 GPUs"):
        parse_job({"run": "x", "slice": "2g", "gpus": 2})
