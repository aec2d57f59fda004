"""What outlives a handle on the fake world: nodes, jobs and their output, all in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import le

from cotenant.backends.base import LaunchSpec, LogMark, LogPart, NodeInfo, Observed, State, Stream
from cotenant.backends.fake_script import Output, Script
from cotenant.backends.gangs import ranks

LIVING: tuple[State, ...] = ("starting", "running", "suspended")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclass(slots=True)
class FakeJob:
    """One key in the world."""

    spec: LaunchSpec
    script: Script
    environments: list[dict[str, str]]
    output: Output
    state: State = "starting"
    left_s: float = 0.0
    since_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    version: int = 0
    cpus: tuple[int, ...] | None = None
    cpu_share: float | None = None
    mem_gib: float | None = None
    told: list[str] = field(default_factory=list)
    found_on: tuple[tuple[str, tuple[int, ...]], ...] = ()
    shown: tuple[object, Observed] | None = None  # as it was observed last, and of what that was made


@dataclass(slots=True)
class World:
    """What outlives a handle: time, nodes, jobs, and what is to happen (time, order, key, version)."""

    nodes: dict[str, NodeInfo]
    now_s: float = 0.0
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    agenda: list[tuple[float, int, str, int]] = field(default_factory=list)
    order: int = 0
    changed: bool = False
    kept: dict[str, Output] = field(default_factory=dict)
    ends: dict[str, Observed] = field(default_factory=dict)
    checkpoints: set[str] = field(default_factory=set)
    uses: Callable[[LaunchSpec], tuple[float, float]] | None = None  # busy share and GiB of a job alone on a GPU
    boot_s: float = 300.0  # from `wake_nodes` until a node is up
    power: list[tuple[float, str, str]] = field(default_factory=list)  # when which node was told to sleep or wake
    cut: bool = False  # nobody reaches it: every call but `wait_change` and `wake` is `Unreachable`


class FakeLog:
    """Output that is in no file: as of the virtual time when it is read."""

    def __init__(self, world: World, key: str, stream: Stream) -> None:
        self._world, self.key, self._stream = world, key, stream

    def _now(self) -> tuple[int, bytes]:
        job = self._world.jobs.get(self.key)
        output = job.output if job is not None else self._world.kept.get(self.key)
        if output is None:
            return 0, b""
        running_s = self._world.now_s - job.since_s if job is not None and job.state == "running" else 0.0
        return output.so_far(self._stream, output.ran_s + running_s)

    def span(self) -> tuple[int, int]:
        """The oldest byte that is kept, and the end."""
        first, data = self._now()
        return first, first + len(data)

    def read(self, offset: int, size: int) -> LogPart:
        """Bytes from an offset on."""
        first, data = self._now()
        at = max(offset, first)
        return LogPart(at, data[at - first : at - first + size])

    def ended(self) -> bool:
        """Whether it can print no more."""
        job = self._world.jobs.get(self.key)
        return job is None or job.state not in LIVING


class FakeTimes:
    """Marks of output in memory: one for every line that a script prints, as if nobody had suspended it."""

    def __init__(self, world: World, key: str) -> None:
        self._world, self._key = world, key

    def marks(self, at_s: float, stdout: float, stderr: float, most: int) -> list[LogMark]:
        """From the last mark that lies at or before all three on."""
        job = self._world.jobs.get(self._key)
        output = job.output if job is not None else self._world.kept.get(self._key)
        found, ends = [], {"stdout": 0, "stderr": 0}
        if output is None:
            return []
        for after_s, stream, text in output.lines:
            found.append(LogMark(output.began_s + after_s, ends["stdout"], ends["stderr"]))
            ends[stream] += len(text)
        before = sum(all(map(le, mark, (at_s, stdout, stderr))) for mark in found)
        return found[max(before - 1, 0) :][:most]


def new_job(spec: LaunchSpec, script: Script, nodes: Mapping[str, NodeInfo]) -> FakeJob:
    """A job of which nothing has happened yet."""
    home = spec.calls_home.environment() if spec.calls_home is not None else {}
    own = {**spec.env, **home, "COTENANT_KEY": spec.key, "COTENANT_JOB": spec.job}
    environments = [
        own | {"CUDA_VISIBLE_DEVICES": ",".join(str(k) for _, some in rank.gpus for k in some)} | rank.environment()
        for rank in ranks(spec, nodes)
    ]
    lines = [
        (at_s, stream, _VARIABLE.sub(lambda name, env=env: env.get(name[1], ""), text).encode())  # type: ignore[misc]
        for at_s, stream, text in script.output
        for env in environments
    ]
    limits: dict[Stream, int] = {
        "stdout": int(spec.stdout_limit_mib * 2**20) or 1,
        "stderr": int(spec.stderr_limit_mib * 2**20) or 1,
    }
    job = FakeJob(spec, script, environments, Output(lines, limits), left_s=script.duration_s)
    job.cpus, job.cpu_share, job.mem_gib = spec.cpus, spec.cpu_share, spec.mem_gib
    return job
