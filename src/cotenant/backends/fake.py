"""A world in memory with a clock that only moves when asked: for tests of whatever drives a backend.

Jobs are scripted. By default the fake reads the few shell words that tests need from the job's own `run` text
(`sleep N`, `sleep infinity`, `exit N`, `kill -N $$`, `trap '' TERM`; the rest takes no time), so the same specs run
on the real backend; `behave` replaces that reading. `hook` is called before and after every action with its name
(`launch.before`, `kill.after`, ...) and may raise, which is how tests crash a service at a chosen point.
`reopen` gives a second handle on the same world: the service after its restart.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from cotenant.backends.base import (
    BackendError,
    Capabilities,
    LaunchSpec,
    NodeInfo,
    Observed,
    State,
    check_key,
    check_spec,
)

_SIGTERM, _SIGKILL = 15, 9


@dataclass(frozen=True, slots=True)
class Script:
    """How a job behaves when nobody disturbs it. `stubborn` ones do not hear SIGTERM."""

    duration_s: float = 0.0
    exit_code: int = 0
    signal: int | None = None
    stubborn: bool = False
    oom: bool = False
    start_s: float = 0.0


def read_script(spec: LaunchSpec) -> Script:
    """The shell words that the fake understands."""
    text = spec.script if spec.argv is None else " ".join(spec.argv)
    duration_s, code, number, stubborn = 0.0, 0, None, False
    for words in (part.split() for part in re.split(r"[;\n]|&&", text)):
        match words:
            case ["sleep", amount]:
                duration_s += float("inf") if amount == "infinity" else float(amount)
            case ["exit", value]:
                code = int(value)
                break
            case ["kill", flag, "$$"]:
                number = int(flag.lstrip("-"))
                break
            case ["trap", "''", "TERM"]:
                stubborn = True
    return Script(duration_s, code, number, stubborn)


@dataclass(slots=True)
class FakeJob:
    """One key in the world."""

    spec: LaunchSpec
    script: Script
    pid: int
    state: State = "starting"
    left_s: float = 0.0
    since_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    version: int = 0
    launches: int = 1
    cpus: tuple[int, ...] | None = None
    cpu_share: float | None = None
    mem_gib: float | None = None
    told: list[str] = field(default_factory=list)


@dataclass(slots=True)
class World:
    """What outlives a handle: time, nodes, jobs, and what is to happen (time, order, key, version)."""

    nodes: dict[str, NodeInfo]
    now_s: float = 0.0
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    agenda: list[tuple[float, int, str, int]] = field(default_factory=list)
    order: int = 0
    changed: bool = False


def _no_hook(point: str, key: str) -> None:
    pass


class FakeBackend:
    """Deterministic, in memory; thousands of nodes and jobs are fine."""

    def __init__(
        self,
        nodes: Iterable[NodeInfo] = (NodeInfo("fake", "gpu", 4, 8, 64.0),),
        behave: Callable[[LaunchSpec], Script] = read_script,
        hook: Callable[[str, str], None] = _no_hook,
        world: World | None = None,
    ) -> None:
        self.world = world if world is not None else World({node.name: node for node in nodes})
        self.behave = behave
        self.hook = hook

    def reopen(self) -> FakeBackend:
        """Another handle on the same world, without hook."""
        return FakeBackend(behave=self.behave, world=self.world)

    # -- the world's own side: time and faults ---------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self.world.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass and everything happen that is due."""
        until = self.world.now_s + seconds
        while self.world.agenda and self.world.agenda[0][0] <= until:
            self._happen()
        self.world.now_s = until

    def set_node(self, name: str, up: bool) -> None:
        """Take a node away, and with it its jobs, which become lost; or bring it back."""
        self.world.nodes[name] = replace(self.world.nodes[name], state="up" if up else "down")
        self.world.changed = True
        for job in self.world.jobs.values():
            if not up and job.state not in ("exited", "lost") and any(node == name for node, _ in job.spec.gpus):
                self._stop_clock(job)
                job.state, job.message = "lost", f"node {name} is down"

    def _plan(self, job: FakeJob, after_s: float) -> None:
        job.version += 1
        self.world.order += 1
        if after_s != float("inf"):
            entry = (self.world.now_s + after_s, self.world.order, job.spec.key, job.version)
            heapq.heappush(self.world.agenda, entry)

    def _happen(self) -> None:
        when, _, key, version = heapq.heappop(self.world.agenda)
        job = self.world.jobs.get(key)
        if job is None or job.version != version:
            return
        self.world.now_s = max(self.world.now_s, when)
        self.world.changed = True
        if job.state == "starting":
            job.state, job.started_s, job.since_s = "running", self.world.now_s, self.world.now_s
            self._plan(job, job.left_s)
        elif job.script.signal is not None:
            self._end(job, None, job.script.signal)
        else:
            self._end(job, job.script.exit_code, None)

    def _stop_clock(self, job: FakeJob) -> None:
        if job.state == "running":
            job.left_s -= self.world.now_s - job.since_s
        job.version += 1

    def _end(self, job: FakeJob, code: int | None, number: int | None) -> None:
        self._stop_clock(job)
        job.state, job.exit_code, job.signal = "exited", code, number
        job.ended_s = self.world.now_s
        job.started_s = self.world.now_s if job.started_s is None else job.started_s
        self.world.changed = True

    def _living(self, key: str, *states: State) -> FakeJob | None:
        job = self.world.jobs.get(check_key(key))
        return job if job is not None and job.state in (states or ("starting", "running", "suspended")) else None

    # -- the protocol ----------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """The nodes, down ones included."""
        return list(self.world.nodes.values())

    def capabilities(self) -> Capabilities:
        """Everything, since nothing is real."""
        return Capabilities("virtual", True, True, True, "freezer", "none", "cgroup", True)

    def launch(self, spec: LaunchSpec) -> None:
        """Start the job unless its key was ever started."""
        check_spec(spec, self.world.nodes)
        self.hook("launch.before", spec.key)
        for name, _ in spec.gpus:
            if self.world.nodes[name].state == "down":
                raise BackendError(f"job {spec.key}: node {name} is down")
        known = self.world.jobs.get(spec.key)
        if known is not None:
            known.launches += 1
        else:
            script = self.behave(spec)
            job = FakeJob(spec, script, 1000 + self.world.order, left_s=script.duration_s)
            job.cpus, job.cpu_share, job.mem_gib = spec.cpus, spec.cpu_share, spec.mem_gib
            self.world.jobs[spec.key] = job
            self._plan(job, script.start_s)
        self.hook("launch.after", spec.key)

    def observe(self) -> list[Observed]:
        """Every job of the world, ordered by key."""
        self.hook("observe.before", "")
        return [self._see(key, self.world.jobs[key]) for key in sorted(self.world.jobs)]

    def _see(self, key: str, job: FakeJob) -> Observed:
        pid = job.pid if job.state in ("running", "suspended") else None
        oom = job.state == "exited" and job.script.oom
        times = (job.started_s, job.ended_s)
        return Observed(key, job.state, pid, job.exit_code, job.signal, *times, oom, job.message)

    def wait_change(self, timeout_s: float | None) -> bool:
        """Move the clock to the next event, or by the whole time when none comes before."""
        until = float("inf") if timeout_s is None else self.world.now_s + timeout_s
        while not self.world.changed and self.world.agenda and self.world.agenda[0][0] <= until:
            self._happen()
        changed, self.world.changed = self.world.changed, False
        if not changed:
            if timeout_s is None:
                raise BackendError("nothing is ever going to happen: this wait would not end")
            self.world.now_s = until
        return changed

    def wake(self) -> None:
        """End the next `wait_change` at once."""
        self.world.changed = True

    def terminate(self, key: str) -> bool:
        """SIGTERM: ends the job unless it is stubborn; a suspended one is woken."""
        self.hook("terminate.before", key)
        job = self._living(key)
        if job is not None:
            job.told.append("terminate")
            if not job.script.stubborn:
                self._end(job, None, _SIGTERM)
            elif job.state == "suspended":
                self.resume(key)
        self.hook("terminate.after", key)
        return job is not None

    def kill(self, key: str) -> bool:
        """SIGKILL."""
        self.hook("kill.before", key)
        job = self._living(key)
        if job is not None:
            job.told.append("kill")
            self._end(job, None, _SIGKILL)
        self.hook("kill.after", key)
        return job is not None

    def suspend(self, key: str) -> bool:
        """Stop the job's clock."""
        self.hook("suspend.before", key)
        job = self._living(key)
        if job is not None and job.state != "suspended":
            self._settle(job)
            self._stop_clock(job)
            job.state = "suspended"
            job.told.append("suspend")
        self.hook("suspend.after", key)
        return job is not None

    def resume(self, key: str) -> bool:
        """Let the job's clock run on."""
        self.hook("resume.before", key)
        job = self._living(key)
        if job is not None and job.state == "suspended":
            job.state, job.since_s = "running", self.world.now_s
            job.told.append("resume")
            self._plan(job, job.left_s)
        self.hook("resume.after", key)
        return job is not None

    def _settle(self, job: FakeJob) -> None:
        if job.state == "starting":
            job.state, job.started_s, job.since_s = "running", self.world.now_s, self.world.now_s

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """Remember the limits."""
        self.hook("set_limits.before", key)
        job = self._living(key)
        if job is not None:
            job.cpus = job.cpus if cpus is None else tuple(cpus)
            job.cpu_share = job.cpu_share if cpu_share is None else cpu_share
            job.mem_gib = job.mem_gib if mem_gib is None else mem_gib
        self.hook("set_limits.after", key)
        return job is not None

    def forget(self, key: str) -> None:
        """Drop an ended or lost job."""
        self.hook("forget.before", key)
        if self._living(key) is not None:
            raise BackendError(f"job {key} still runs: kill it before forgetting it")
        self.world.jobs.pop(key, None)
        self.hook("forget.after", key)

    def log_paths(self, key: str) -> dict[str, tuple[str, ...]]:
        """A fake writes nothing."""
        check_key(key)
        return {"stdout": (), "stderr": ()}

    def close(self) -> None:
        """Nothing to let go of."""
