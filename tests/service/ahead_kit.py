"""A service over a fake world whose processes take a while to start, and wait for `go` where they are told to."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

from service_kit import ONE, Rig, cells

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeJob
from cotenant.backends.fake_script import Script, read_script
from cotenant.runtime.protocol import Built, Hello
from cotenant.service.core import CoreService
from cotenant.service.desk import views

START_S = 10.0


class AheadRig(Rig):
    """Every `sleep N` is N seconds of work after `START_S` of imports; whoever has COTENANT_HOLD waits before it."""

    def __init__(self, home: Path, policy: str = "fifo", nodes: tuple[NodeInfo, ...] = ONE, **more: Any) -> None:
        self.waiting: dict[str, float] = {}  # keys that wait for `go`, and when they were started
        super().__init__(home, policy, nodes, **{"prefetch_starts": True, "max_suspended": 0, **more})

    def _open(self, policy: str) -> CoreService:
        self.backend.behave = self._behave
        service = super()._open(policy)
        release = service.reports.go

        def go(job: str) -> None:
            release(job)
            self._knock(service)

        service.reports.go = go  # type: ignore[method-assign]
        self._knock(service)
        return service

    def _behave(self, spec: LaunchSpec) -> Script:
        script = read_script(spec)
        if "COTENANT_HOLD" in spec.env and script.exit_code == 0:
            self.waiting[spec.key] = self.backend.now_s
            return Script(inf)
        return Script(script.duration_s + START_S, script.exit_code, stubborn=script.stubborn)

    def _knock(self, service: CoreService) -> None:
        """Those who wait ask again whether they may go on, as after a reconnection."""
        for key in list(self.waiting):
            job, _, attempt = key.rpartition("-")
            hello = Hello("", job, int(attempt), 1, waits=True)
            if key in self.backend.world.jobs and service.reports.holding.lets_go(hello):
                self._goes(key, self.backend.world.jobs[key])

    def _goes(self, key: str, job: FakeJob) -> None:
        began_s = self.waiting.pop(key)
        mine = cells(job.spec.gpus)
        for other, there in self.backend.world.jobs.items():
            alive = there.state in ("starting", "running") and other not in self.waiting and other != key
            assert not (alive and mine & cells(there.spec.gpus)), f"{key} works on the GPUs of {other}"
        left_s = max(START_S - (self.backend.now_s - began_s), 0.0) + read_script(job.spec).duration_s
        job.script = Script(left_s)
        job.left_s = left_s
        if job.state == "running":
            job.since_s = self.backend.now_s
            self.backend._plan(job, left_s)

    def knows(self, job: str) -> None:
        """A job that runs says that it would have waited, at both places."""
        self.says(job, Hello("", job, 1, 1, untouched=True))
        self.says(job, Built(0))

    def check(self) -> None:
        """As ever, but for those who only wait."""
        world = self.backend.world
        whole = dict(world.jobs)
        world.jobs = {key: job for key, job in whole.items() if key not in self.waiting}
        try:
            super().check()
        finally:
            world.jobs = whole

    def reason(self, job: str) -> str:
        view = self.service.store.view()
        return views.reason(view.jobs[job], view, "")

    def kinds(self, job: str) -> list[str]:
        return [record.kind for record in self.service.store.story(job)]
