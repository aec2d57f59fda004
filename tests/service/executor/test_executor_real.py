"""Worker threads act on real processes while the scheduler's thread looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parts_kit import Greedy

from cotenant.core.jobspec import JobSpec
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_many_jobs_at_once_and_one_that_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planner(core: CoreService) -> Greedy:
        return Greedy(core.store.book, 4, node=core.observer.nodes[0].name)

    monkeypatch.setattr("cotenant.service.core._planner", planner)
    options = Options(tmp_path, grace_s=2.0, policy="fifo")
    with running(open_service(options, Site(gpus=4))) as core:
        book = core.store.book

        def submit(number: int, run: str, **fields: Any) -> None:
            spec = JobSpec(run, name=f"j{number}", workdir=str(tmp_path), **fields)
            assert core.desk.submit(Caller("me", Role.ADMIN), [spec]) == [[str(number)]]

        for number in range(1, 9):
            submit(number, "exec sleep 0.3")
        submit(9, "exec sleep 1.5", gpus=4)
        _wait(lambda: str(book.jobs["9"].state) == "running")
        submit(10, "true", gpus=4, priority=5)
        _wait(lambda: not book.active)
        assert {str(job.state) for job in book.jobs.values()} == {"succeeded"}
        assert [len(job.attempts) for job in book.jobs.values()] == [1] * 10
        assert book.jobs["9"].last.suspensions == 1
        _wait(lambda: not core.executor.in_flight)
