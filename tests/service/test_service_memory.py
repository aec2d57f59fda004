"""Jobs that can do with less than their peak share a GPU whose memory gives, live: who is granted what, and is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig, plan_rig, play, states

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job

SMALL = (NodeInfo("n0", "gpu", 1, 8, 64.0, gpu_mem_gib=24.0),)
SPEEDS = {10: 0.9, 12: 0.95}


def squeezed(tmp_path: Path, oversubscribe: str) -> tuple[Rig, str, str]:
    """A job of 400 s, and after two seconds one of 30 s, both of 16 GiB that can do with 10, on a GPU of 24."""
    rig = plan_rig(tmp_path, "sjf-bsbf", SMALL, oversubscribe=oversubscribe)
    asks = {"gpu_mem": 16, "gpu_mem_min": 10, "gpu_mem_speeds": SPEEDS}
    first = rig.submit("sleep 400", model="lstm", expected=400, **asks)
    play(rig, 2)
    second = rig.submit("sleep 30", model="recsys", expected=30, **asks)
    play(rig, 2)
    return rig, first, second


def test_both_are_granted_twelve_and_told_so(tmp_path: Path) -> None:
    rig, first, second = squeezed(tmp_path, "1.5@9999")
    assert states(rig, [first, second]) == ["running"] * 2
    assert [rig.service.reports.told(job).gpu_mem_gib for job in (first, second)] == [12, 12]
    launched = [rig.backend.launched(rig.service.store.book.jobs[job].key) for job in (first, second)]
    assert [spec.gpu_mem_gib for spec in launched if spec] == [16, 12]
    assert [spec.env["COTENANT_GPU_MEM_PEAK_GIB"] for spec in launched if spec] == ["16", "16"]
    assert rig.service.desk.job(ADMIN, first).reason.endswith("granted 12 of 16 GiB per GPU")
    assert "granted 12 of 16 GiB" in rig.service.desk.why(ADMIN, second)["text"]
    while rig.state(second) == "running":
        play(rig, 1)
    play(rig, 1)
    assert rig.service.reports.told(first).gpu_mem_gib == 16
    assert "granted" not in rig.service.desk.job(ADMIN, first).reason


def test_who_is_alone_after_a_crash_may_use_all_it_asks_for(tmp_path: Path) -> None:
    """Its neighbour ended while there was no service: the new one has not granted it less, but the old one had."""
    rig, first, second = squeezed(tmp_path, "1.5@9999")
    rig.backend.advance(60.0)
    rig.restart()
    play(rig, 2)
    assert states(rig, [first, second]) == ["running", "succeeded"]
    assert rig.service.reports.told(first).gpu_mem_gib == 16


def test_who_is_still_in_company_after_a_crash_keeps_its_grant(tmp_path: Path) -> None:
    rig, first, second = squeezed(tmp_path, "1.5@9999")
    rig.restart()
    play(rig, 2)
    assert states(rig, [first, second]) == ["running"] * 2
    assert [rig.service.reports.told(job).gpu_mem_gib for job in (first, second)] != [16, 16]


@pytest.mark.parametrize("oversubscribe", ["", "1.25@9999", "1.5@20"])
def test_one_after_the_other_where_peaks_must_fit(tmp_path: Path, oversubscribe: str) -> None:
    rig, first, second = squeezed(tmp_path, oversubscribe)
    assert states(rig, [first, second]) == ["running", "pending"]
    assert rig.service.desk.job(ADMIN, first).reason == ""


def test_what_people_write_in_job_files() -> None:
    spec = parse_job({"run": "x", "gpu_mem": 16, "gpu_mem_min": "10G", "gpu_mem_speeds": "10:0.6;13:0.9"})
    assert (spec.gpu_mem_min_gib, spec.gpu_mem_speeds) == (10, ((10, 0.6), (13, 0.9)))
    with pytest.raises(InputError, match="'gpu_mem_min' is 20 GiB, more than 'gpu_mem'"):
        parse_job({"run": "x", "gpu_mem": 16, "gpu_mem_min": 20})
    for wrong in ("10", [1], {"a": 1}, {10: 2}):
        with pytest.raises(InputError, match="gpu_mem_speeds"):
            parse_job({"run": "x", "gpu_mem": 16, "gpu_mem_speeds": wrong})
