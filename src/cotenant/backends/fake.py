"""A world in memory with a clock that only moves when asked: for tests of whatever drives a backend.

Jobs are scripted: `fake_script` reads the few shell words that tests need from the job's own `run` text, `behave`
replaces that reading. `hook` is called before and after every action with its name (`launch.before`, `kill.after`,
...) and may raise, which is how tests crash a service at a chosen point. `reopen` gives a second handle on the same
world: the service after its restart.

It is as far away as a backend can be: nodes of their own address, launches that take `launch_s` of virtual time, no
pids, output in memory that only `open_log` can read, runtimes that call home over TCP. `program` is called with the
environment of each rank when a job begins to run, so that tests can have something real happen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from cotenant.backends.base import (
    BackendError,
    Capabilities,
    GpuUse,
    JobUse,
    LaunchSpec,
    NodeGone,
    NodeInfo,
    NodeState,
    Observed,
    State,
    Stream,
    Unreachable,
    check_key,
    check_spec,
)
from cotenant.backends.channels import ChannelKind, ChannelPart, ChannelSpec
from cotenant.backends.fake_channel import FakeChannel
from cotenant.backends.fake_script import Script, read_script
from cotenant.backends.fake_world import LIVING, FakeJob, FakeLog, FakeTimes, World, new_job
from cotenant.core.node_faults import NodeFault

__all__ = ["FakeBackend", "FakeJob", "FakeLog", "Script", "World", "read_script"]

_SIGTERM, _SIGKILL = 15, 9
_NODE = "node:"  # before the name of a node in the agenda; no key holds a colon


def _no_hook(point: str, key: str) -> None:
    pass


def _no_program(spec: LaunchSpec, environment: Mapping[str, str]) -> None:
    pass


class FakeBackend:
    """Deterministic, in memory; thousands of nodes and jobs are fine."""

    def __init__(
        self,
        nodes: Iterable[NodeInfo] = (NodeInfo("fake", "gpu", 4, 8, 64.0),),
        behave: Callable[[LaunchSpec], Script] = read_script,
        hook: Callable[[str, str], None] = _no_hook,
        world: World | None = None,
        *,
        launch_s: float = 0.0,
        program: Callable[[LaunchSpec, Mapping[str, str]], None] = _no_program,
        exact_gpus: bool = True,
    ) -> None:
        self.world = world if world is not None else World({node.name: node for node in nodes})
        self.behave = behave
        self.hook = hook
        self.launch_s = launch_s
        self.program = program
        self.exact_gpus = exact_gpus

    def reopen(self) -> FakeBackend:
        """Another handle on the same world, without hook."""
        more = {"launch_s": self.launch_s, "program": self.program, "exact_gpus": self.exact_gpus}
        return FakeBackend(behave=self.behave, world=self.world, **more)  # type: ignore[arg-type]

    def _before(self, act: str, key: str) -> None:
        self.hook(f"{act}.before", key)
        self._reach()

    def _reach(self) -> None:
        if self.world.cut:
            raise Unreachable("the fake world does not answer")

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
        self.world.nodes[name] = replace(self.world.nodes[name], state="up" if up else "down", ready_s=0.0)
        self.world.changed = True
        for job in self.world.jobs.values():
            if not up and job.state in LIVING and any(node == name for node, _ in job.spec.gpus):
                self._lose(job, f"node {name} is down")

    def set_faults(self, name: str, *faults: NodeFault) -> None:
        """From now on this, and nothing else, is wrong with a node."""
        self.world.nodes[name] = replace(self.world.nodes[name], faults=faults)
        self.world.changed = True

    def _lose(self, job: FakeJob, message: str) -> None:
        self._stop_clock(job)
        job.state, job.message = "lost", message

    def _plan(self, job: FakeJob, after_s: float) -> None:
        self._outdate(job)
        if after_s != float("inf"):
            entry = (self.world.now_s + after_s, self.world.order, job.spec.key, job.version)
            heapq.heappush(self.world.agenda, entry)

    def _happen(self) -> None:
        when, _, key, version = heapq.heappop(self.world.agenda)
        if key.startswith(_NODE):
            self._boot(key.removeprefix(_NODE), when)
            return
        job = self.world.jobs.get(key)
        if job is None or job.version != version:
            return
        self.world.now_s = max(self.world.now_s, when)
        self.world.changed = True
        if job.state == "starting" and job.script.never:
            self._lose(job, job.script.never)
        elif job.state == "starting":
            self._settle(job)
            self._plan(job, job.left_s)
        elif job.script.signal is not None:
            self._end(job, None, job.script.signal)
        else:
            self._end(job, job.script.exit_code, None)

    def _boot(self, name: str, when_s: float) -> None:
        self.world.now_s = max(self.world.now_s, when_s)
        if self.world.nodes[name].state == "waking":
            self.set_node(name, up=True)

    def _stop_clock(self, job: FakeJob) -> None:
        if job.state == "running":
            job.left_s -= self.world.now_s - job.since_s
            job.output.ran_s += self.world.now_s - job.since_s
        self._outdate(job)

    def _outdate(self, job: FakeJob) -> None:
        """What was to happen to it does not happen. No other job has its number, nor an earlier one of its key."""
        self.world.order += 1
        job.version = self.world.order

    def _end(self, job: FakeJob, code: int | None, number: int | None) -> None:
        self._stop_clock(job)
        job.state, job.exit_code, job.signal = "exited", code, number
        job.ended_s = self.world.now_s
        job.started_s = self.world.now_s if job.started_s is None else job.started_s
        self.world.changed = True

    def _living(self, key: str, *states: State) -> FakeJob | None:
        job = self.world.jobs.get(check_key(key))
        return job if job is not None and job.state in (states or LIVING) else None

    # -- the protocol ----------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """The nodes, down ones included."""
        self._reach()
        return list(self.world.nodes.values())

    def sleep_nodes(self, names: Sequence[str]) -> None:
        """See `Sleeps`."""
        self._before("sleep", " ".join(names))
        for job in self.world.jobs.values():
            for node, _ in job.spec.gpus if job.state in LIVING else ():
                if node in names:
                    raise BackendError(f"node {node} cannot sleep: job {job.spec.key} lives there")
        self._switch(names, "up", "asleep")
        self.hook("sleep.after", " ".join(names))

    def wake_nodes(self, names: Sequence[str]) -> None:
        """See `Sleeps`."""
        self._before("wake", " ".join(names))
        ready_s = self.now_s + self.world.boot_s
        for name in self._switch(names, "asleep", "waking"):
            self.world.nodes[name] = replace(self.world.nodes[name], ready_s=ready_s)
            self.world.order += 1
            heapq.heappush(self.world.agenda, (ready_s, self.world.order, f"{_NODE}{name}", 0))
        self.hook("wake.after", " ".join(names))

    def _switch(self, names: Sequence[str], of: NodeState, to: NodeState) -> list[str]:
        """Those of the nodes that were in one state are in the other."""
        found = [name for name in names if self.world.nodes[name].state == of]
        for name in found:
            self.world.nodes[name] = replace(self.world.nodes[name], state=to)
            self.world.power.append((self.now_s, name, to))
            self.world.changed = True
        return found

    def gpu_use(self) -> tuple[GpuUse, ...]:
        """See `Measures`: as `World.uses` says of each running job; two share a GPU's time."""
        found: list[GpuUse] = []
        for node in self.world.nodes.values() if self.world.uses is not None else ():
            for index in range(node.gpus):
                running = [job.spec for job in self.world.jobs.values() if job.state == "running"]
                here = [spec for spec in running if any(n == node.name and index in some for n, some in spec.gpus)]
                uses = [JobUse(spec.key, *self.world.uses(spec)) for spec in here]  # type: ignore[misc]
                total = sum(use.busy for use in uses)
                found.append(GpuUse(node.name, index, min(total, 1.0), sum(use.used_gib for use in uses), tuple(uses)))
        return tuple(found)

    def capabilities(self) -> Capabilities:
        """Everything, since nothing is real."""
        channels: tuple[ChannelKind, ...] = ("exec", "attach", "port")
        found = Capabilities("virtual", True, True, True, "freezer", "none", "cgroup", True, channels=channels)
        return replace(found, exact_gpus=self.exact_gpus)

    def launch(self, spec: LaunchSpec) -> None:
        """Start the job unless its key was ever started."""
        check_spec(spec, self.world.nodes)
        self._before("launch", spec.key)
        for name, _ in spec.gpus:
            if self.world.nodes[name].state != "up":
                raise NodeGone(f"job {spec.key}: node {name} is {self.world.nodes[name].state}")
        if spec.key not in self.world.jobs:
            job = self.world.jobs[spec.key] = new_job(spec, self.behave(spec), self.world.nodes)
            self._plan(job, self.launch_s + job.script.start_s)
        self.hook("launch.after", spec.key)

    def observe(self) -> list[Observed]:
        """Every job of the world, ordered by key."""
        self._before("observe", "")
        return [self._see(key, self.world.jobs[key]) for key in sorted(self.world.jobs)]

    def _see(self, key: str, job: FakeJob) -> Observed:
        """The same object while nothing has changed."""
        oom = job.state == "exited" and job.script.oom
        how = (job.exit_code, job.signal, job.started_s, job.ended_s, oom, job.message)
        if job.shown is None or job.shown[0] != (job.state, how, job.found_on):
            alive = job.state in LIVING
            job.shown = (job.state, how, job.found_on), Observed(key, job.state, alive, *how, gpus=job.found_on)
        return job.shown[1]

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
        self._before("terminate", key)
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
        self._before("kill", key)
        job = self._living(key)
        if job is not None:
            job.told.append("kill")
            self._end(job, None, _SIGKILL)
        self.hook("kill.after", key)
        return job is not None

    def suspend(self, key: str) -> bool:
        """Stop the job's clock."""
        self._before("suspend", key)
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
        self._before("resume", key)
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
            job.output.ran_s, job.output.began_s = 0.0, self.world.now_s
            job.found_on = () if self.exact_gpus else self._choose(job.spec)
            for environment in job.environments:
                self.program(job.spec, environment)

    def _choose(self, spec: LaunchSpec) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """As an engine that gives GPUs out by itself: the last ones of each node that are free."""
        living = [job for job in self.world.jobs.values() if job.state in LIVING]
        taken = {(node, k) for job in living for node, some in job.found_on for k in some}
        found = []
        for node, asked in spec.gpus:
            free = [k for k in range(self.world.nodes[node].gpus) if (node, k) not in taken]
            found.append((node, tuple(free[len(free) - len(asked) :])))
        return tuple(found)

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """Remember the limits."""
        self._before("set_limits", key)
        job = self._living(key)
        if job is not None:
            job.cpus = job.cpus if cpus is None else tuple(cpus)
            job.cpu_share = job.cpu_share if cpu_share is None else cpu_share
            job.mem_gib = job.mem_gib if mem_gib is None else mem_gib
        self.hook("set_limits.after", key)
        return job is not None

    def forget(self, key: str, keep_log: bool = False) -> None:
        """Drop an ended or lost job."""
        self._before("forget", key)
        if self._living(key) is not None:
            raise BackendError(f"job {key} still runs: kill it before forgetting it")
        job = self.world.jobs.pop(key, None)
        if job is not None and keep_log:
            self.world.ends[key] = self._see(key, job)
            if job.output.lines:
                self.world.kept[key] = job.output
        self.hook("forget.after", key)

    def launched(self, key: str) -> LaunchSpec | None:
        """See `Recalls`."""
        job = self.world.jobs.get(key)
        return job.spec if job is not None else None

    def ended(self, key: str) -> Observed | None:
        """See `Recalls`."""
        return self.world.ends.get(key)

    def open_log(self, key: str, stream: Stream) -> FakeLog:
        """Output of the job, or what was kept of it."""
        return FakeLog(self.world, check_key(key), stream)

    def open_times(self, key: str) -> FakeTimes:
        """When its lines came."""
        return FakeTimes(self.world, check_key(key))

    def open_channel(self, key: str, asked: ChannelSpec) -> FakeChannel:
        """What a script says, or an echo."""
        job = self._living(key, "running")
        if job is None or (asked.kind == "attach" and not job.spec.tty):
            raise BackendError(f"job {key} does not run" if job is None else f"job {key} has no terminal")
        if asked.kind != "exec":
            return FakeChannel()
        text = asked.argv[2] if asked.argv[:2] == ("sh", "-c") else " ".join(asked.argv)
        script = self.behave(replace(job.spec, argv=None, script=text))
        said = [ChannelPart(stream, line.encode()) for _, stream, line in script.output]
        return FakeChannel([*said, ChannelPart("end", exit_code=script.exit_code)])

    def drop_log(self, key: str) -> None:
        """Drop what was kept."""
        self.world.kept.pop(check_key(key), None)

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """A folder that is nowhere; below `/no/` none can be made."""
        if asked.startswith("/no/"):
            raise BackendError(f"job {job}: no folder for checkpoints: {asked}")
        if not asked:
            self.world.checkpoints.add(check_key(job))
        return asked or f"/nowhere/checkpoints/{job}"

    def drop_checkpoints(self, job: str) -> None:
        """Remember that it is gone."""
        self.world.checkpoints.discard(check_key(job))

    def listen_at(self) -> tuple[str, ...]:
        """Over TCP: a job that is far away sees no socket."""
        return ("tcp:127.0.0.1:0",)

    def close(self) -> None:
        """Nothing to let go of."""
