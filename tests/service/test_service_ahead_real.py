"""Real processes that are started ahead of a virtual GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_service_real import ADMIN, ROOT, running, until

from cotenant.core.jobspec import parse_job


@pytest.mark.parametrize("gpu_mem", [10, 60])
def test_the_next_one_is_built_while_the_gpu_is_busy_and_works_when_it_is_free(tmp_path: Path, gpu_mem: int) -> None:
    """With memory for both it waits before its first step, else before it builds."""
    gate, trail = tmp_path / "gate", tmp_path / "trail"
    script = f"{sys.executable} {ROOT / 'bench' / 'ahead_job.py'} --import 0 --build 0 --steps 3 --step-time 0.01"
    run: dict[str, Any] = {"run": f"{script} --trail {trail} --gate {gate}", "expected": 1, "gpu_mem": gpu_mem}
    run["env"] = {"PYTHONPATH": str(ROOT / "src")}

    def said(word: str, job: str) -> bool:
        return trail.exists() and f"{word} {job}-1 " in trail.read_text()

    with running(tmp_path / "home", "fifo", grace_s=5.0, gpus=1, prefetch_starts=True) as service:
        ((first,), (second,)) = service.desk.submit(ADMIN, [parse_job(run), parse_job(run)])
        until(service, lambda: said("first", first) and said("begin", second))
        until(service, lambda: gpu_mem == 60 or said("built", second))
        info = service.desk.job(ADMIN, second)
        assert (str(info.state), info.reason) == ("pending", "starting ahead, waits for its GPUs")
        assert service.admin.nodes(ADMIN)[0].jobs == (first,)
        assert not said("first", second)
        gate.touch()
        until(service, lambda: not service.store.book.active)
        words = [line.split()[:2] for line in trail.read_text().splitlines()]
        assert words.index(["end", f"{first}-1"]) < words.index(["first", f"{second}-1"])
        assert (words.index(["built", f"{second}-1"]) < words.index(["end", f"{first}-1"])) == (gpu_mem == 10)
        for job in (first, second):
            (attempt,) = service.desk.job(ADMIN, job).attempts
            assert (attempt.exit_code, attempt.lost_s) == (0, 0.0)
        until(service, lambda: service.backend.observe() == [])
