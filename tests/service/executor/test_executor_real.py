"""Worker threads act on real processes while the scheduler's thread looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from parts_kit import Greedy

from cotenant.core.jobspec import JobSpec
from cotenant.journal import Entry
from cotenant.service.core import CoreService, Parts
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.service.store.job import plain_spec
from cotenant.testing.live import running


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_many_jobs_at_once_and_one_that_makes_room(tmp_path: Path) -> None:
    def planner(core: CoreService) -> Greedy:
        return Greedy(core.store.book, 4, node=core.observer.nodes[0].name)

    parts = Parts(planner, lambda core: None, lambda core: None)
    options = Options(tmp_path, grace_s=2.0, policy="fifo")
    with running(open_service(options, Site(gpus=4), parts)) as core:
        book = core.store.book

        def submit(number: int, run: str, **fields: int) -> None:
            spec = JobSpec(run, name=f"j{number}", workdir=str(tmp_path), **fields)
            core.store.write([Entry("submit", str(number), {"spec": plain_spec(spec), "tenant": "t", "user": "u"})])
            core.backend.wake()

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
