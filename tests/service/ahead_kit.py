"""A service over a fake world whose processes take a while to start, and wait for `go` where they are told to."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Literal

from service_kit import ONE, Rig, cells

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeJob
from cotenant.backends.fake_script import Script, read_script
from cotenant.journal import Entry
from cotenant.runtime.protocol import Built, Hello, Progress
from cotenant.service.core import CoreService
from cotenant.service.desk import views
from cotenant.service.store.barriers import kind_of

START_S, STEP_S = 10.0, 0.5


class AheadRig(Rig):
    """Every `sleep N` is N seconds of work after `START_S` of imports; whoever has COTENANT_HOLD waits before it."""

    isolation: Literal["none", "user"] = "none"

    def __init__(self, home: Path, policy: str = "fifo", nodes: tuple[NodeInfo, ...] = ONE, **more: Any) -> None:
        self.waiting: dict[str, float] = {}  # keys that wait for `go`, and when they were started
        self.works: dict[str, tuple[float, float, float]] = {}  # when it was started, begins to work, and for how long
        super().__init__(home, policy, nodes, **{"prefetch_starts": True, "max_suspended": 0, **more})

    def _open(self, policy: str) -> CoreService:
        self.backend.behave = self._behave
        found = replace(self.backend.capabilities(), isolation=self.isolation)
        self.backend.capabilities = lambda: found  # type: ignore[method-assign]
        service = super()._open(policy)
        release = service.reports.holding.go

        def go(job: str) -> None:
            release(job)
            self._knock(service)

        service.reports.holding.go = go  # type: ignore[method-assign]
        look = service.tick

        def tick() -> float:
            self._report(service)
            return look()

        service.tick = tick  # type: ignore[method-assign]
        self._knock(service)
        return service

    def _report(self, service: CoreService) -> None:
        """Whoever works says how far it is: two steps a second."""
        for key, (began_s, from_s, work_s) in self.works.items():
            job, now_s = self.backend.world.jobs.get(key), self.backend.now_s
            if job is not None and job.state == "running" and now_s >= from_s + STEP_S:
                name, _, attempt = key.rpartition("-")
                done, ready_s = int((now_s - from_s) / STEP_S), from_s + STEP_S - began_s
                progress = Progress(
                    done, int(work_s / STEP_S), STEP_S, age_s=now_s - began_s, ready_s=ready_s, ready_step=1
                )
                service.reports.hear(Hello("", name, int(attempt), 1), progress)

    def _behave(self, spec: LaunchSpec) -> Script:
        script = read_script(spec)
        if "COTENANT_HOLD" in spec.env and script.exit_code == 0:
            self.waiting[spec.key] = self.backend.now_s
            return Script(inf)
        self.works[spec.key] = self.backend.now_s, self.backend.now_s + START_S, script.duration_s
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
        start_s, work_s = max(START_S - (self.backend.now_s - began_s), 0.0), read_script(job.spec).duration_s
        left_s = start_s + work_s
        self.works[key] = began_s, self.backend.now_s + start_s, work_s
        job.script = Script(left_s)
        job.left_s = left_s
        if job.state == "running":
            job.since_s = self.backend.now_s
            self.backend._plan(job, left_s)

    def knows(self, job: str) -> None:
        """A job that runs says that it would have waited, at both places."""
        self.says(job, Hello("", job, 1, 1, untouched=True))
        self.says(job, Built(0))

    def tell_barrier(self, job: str) -> None:
        """As if one of its kind had run before."""
        known = self.service.store.book.jobs[job]
        kind = kind_of(known.spec, known.tenant, known.user)
        self.service.store.write([Entry("barrier", data={"kind": kind, "place": "steps"})])

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
