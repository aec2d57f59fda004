"""The boundary between the service and the world: start, watch and stop jobs, on this machine or on many.

The contract that makes a crash of the service harmless (FfDL, "idempotent launch, undo by label"):

* A launch carries a key, `job-attempt`. One key starts at most one job, however often and by whomever
  `launch` is called, and wherever the caller died in between.
* `observe` tells what is really there, found by marks in the world and never by the caller's memory. A key that
  it does not name was never started: launching it again is safe, forgetting it is harmless.
* `terminate`, `kill`, `suspend`, `resume` and `set_limits` may be repeated. They return whether a living job was there
  and is now as asked (`terminate`: was told), so that the service can take the next rung. Ended or unknown: False.
* The end of a job stays in `observe` until `forget`, which the service calls once it has journaled the end.

What lets a backend be far away: nothing that crosses this boundary is a file or process of the service's machine.

* `launch` may return before anything runs. From then on `observe` names the key: `starting` until it runs, and `lost`
  or `exited` with a message when it never will.
* One agent may keep several jobs of a node. An act on one key touches no other.
* A gang over several machines is one job under one key; every machine runs the command once, and the backend tells
  each who it is and where the first one listens (`gangs`). Acts reach all of them, and it ends as a whole.
* Output is read through `open_log`, and kept after the end if `forget` is asked to. Checkpoints are where
  `checkpoint_dir` says, the same for all attempts of a job. The runtime inside a job calls the service at one of the
  addresses of `listen_at`.
* Whoever cannot reach its control plane says so (`Unreachable`), and never guesses: no job has ended because nobody
  answers. What is told late or twice, by an agent or a watch, changes nothing.
* Nodes are always those of the launch. GPUs are too where `Capabilities.exact_gpus`; elsewhere the indexes of a launch
  only say how many on each node, and `Observed.gpus` which they are.
* `nodes`, `open_log`, `open_times`, `open_channel`, what they give and `wake` may be called from any thread, and so may
  acts, one at a time on each key; one thread observes and waits meanwhile.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from cotenant.backends.channels import Channel, ChannelKind, ChannelSpec
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.node_faults import NodeFault

if TYPE_CHECKING:
    from cotenant.core.partitions import Partitions

State = Literal["starting", "running", "suspended", "exited", "lost"]
Stream = Literal["stdout", "stderr"]
NodeState = Literal["up", "down", "asleep", "waking"]
"""Asleep: off to save energy, and up again some time after `Sleeps.wake_nodes`; waking: on its way."""
ASLEEP: tuple[NodeState, ...] = ("asleep", "waking")
"""Nodes that cannot be used now, but will be when they are needed."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARG_BYTES = 128 * 1024  # MAX_ARG_STRLEN of Linux: the longest single argument that exec takes


class BackendError(CotenantError):
    """The world refused: a process that would not start, a record that cannot be removed yet."""


class NodeGone(BackendError):
    """Nothing was started, for a node of the launch is not there any more: elsewhere or later it would be."""


class Unreachable(BackendError):
    """What runs the jobs does not answer: nothing is known of them now, and what was asked may yet be done."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of one GPU type. GPU indexes of a `LaunchSpec` count from 0 within the node."""

    name: str
    gpu_type: str
    gpus: int
    cpus: int
    mem_gib: float
    state: NodeState = "up"
    gpu_mem_gib: float = 0.0  # of each of its GPUs; 0 where not known
    ready_s: float = 0.0  # of one that wakes: when it is believed to be up; 0 where not known
    leaves_s: float = 0.0  # from then on jobs there must leave, for it goes away by itself; 0: it does not
    address: str = ""  # where other nodes reach it, its name if empty; nodes of one address are one machine
    faults: tuple[NodeFault, ...] = ()  # what is wrong with it, and with its GPUs, now
    out: tuple[int, ...] = ()  # GPUs that the service gives to nobody, because of faults; backends leave it empty
    slices: Partitions | None = None  # how its GPUs may be cut; None: never

    @property
    def usable(self) -> int:
        """How many of its GPUs can be given away."""
        return self.gpus - len(self.out)


@dataclass(frozen=True, slots=True)
class CallHome:
    """How the runtime inside a job reaches the service: `unix:/path` or `tcp:host:port`, and this attempt's own secret.

    A backend may hand its jobs another address that leads there (a tunnel, an agent on the node).
    """

    address: str
    secret: str = field(repr=False)

    def environment(self) -> dict[str, str]:
        """For the job's processes. Runtimes from before there were addresses look for the socket."""
        scheme, _, path = self.address.partition(":")
        older = {"COTENANT_SOCKET": path} if scheme == "unix" else {}
        return {"COTENANT_ADDRESS": self.address, "COTENANT_JOB_TOKEN": self.secret, **older}


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything one attempt needs. `script` and `setup` are shell texts, run by `bash -c` exactly as written.

    `argv`, where given, is executed instead of `script`. `setup` runs first, in the same process group; when it
    fails the job ends with its exit code. `workdir` is a folder of the node, or empty for one that the backend chooses.
    `gpus` names nodes in the order of their ranks. `cpus` are the cores the job is bound to; `cpu_share` caps its CPU
    time in cores (1.5 is one and a half); `gpu_mem_gib` is what it may use of the memory of each of its GPUs. Several
    jobs may have the same GPUs. With `tty` it has a terminal, and what that shows is its stdout. `max_runtime_s`: how
    long it may run, suspended time aside, 0 for ever; the service ends it in time, and a backend whose jobs outlive the
    service does so while there is none. After `terminate` what is left of the job has `grace_s` to finish once its
    first process is gone. `tenant` is whose job it is, for backends that keep tenants apart; `image` the container in
    which all of it runs, for backends that have some (`Capabilities.containers`). `foreign` names a job that is there
    already and waits to be let go (`foreign.TakesForeign`). `slice` is the part of its GPU that it has: the number of a
    shape of `NodeInfo.slices`, from 1, and the column where it begins; (0, 0) for all of it.
    """

    key: str
    job: str
    workdir: str = ""
    argv: tuple[str, ...] | None = None
    script: str = ""
    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[tuple[str, tuple[int, ...]], ...] = ()
    cpus: tuple[int, ...] | None = None
    cpu_share: float | None = None
    mem_gib: float | None = None
    gpu_mem_gib: float | None = None
    stdout_limit_mib: float = 64.0
    stderr_limit_mib: float = 64.0
    grace_s: float = 30.0
    max_runtime_s: float = 0.0
    calls_home: CallHome | None = None
    tty: bool = False
    tenant: str = ""
    image: str = ""
    foreign: str = ""
    slice: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of one key. Times are seconds of the backend's clock (wall time for real ones).

    `exited` carries either an exit code or a signal. `lost` means that nobody can tell how the job ended, or will
    end; if it is `alive`, something of it is still there and wants `kill`. `hint` helps a person to find it where it
    runs (`pid 4711`), and means nothing to programs. `gpus` are those that it really has, where the backend chose them:
    told from `running` on; empty where they are those of the launch.
    """

    key: str
    state: State
    alive: bool = False
    exit_code: int | None = None
    signal: int | None = None
    started_s: float | None = None
    ended_s: float | None = None
    oom: bool = False
    message: str = ""
    hint: str = ""
    gpus: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one attempt does on a GPU: the share of time in which it computes there (NaN: not known), and its GiB."""

    key: str
    busy: float
    used_gib: float


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What a GPU does: the share of time in which anything computes there, GiB in use, and whose, where that is known.

    Busy is coarse: a single small kernel makes the whole GPU count as busy while it runs.
    """

    node: str
    index: int
    busy: float
    used_gib: float
    jobs: tuple[JobUse, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPart:
    """Some bytes of a log. They begin at `at`, which is later than asked where older ones were rotated away."""

    at: int
    data: bytes


class LogReader(Protocol):
    """One stream of one attempt as bytes that are numbered from the first one ever written, however it is stored."""

    @property
    def key(self) -> str:
        """Of which attempt."""
        ...

    def span(self) -> tuple[int, int]:
        """The oldest byte that is kept, and the end."""
        ...

    def read(self, offset: int, size: int) -> LogPart:
        """Up to `size` bytes from an offset on; none at the end, or beyond it."""
        ...

    def ended(self) -> bool:
        """Whether no more can come: nothing of the attempt runs or is about to."""
        ...


class LogMark(NamedTuple):
    """When output came: bytes from these numbers on came at this time or later, those before them earlier."""

    at_s: float
    stdout: int
    stderr: int


class LogTimes(Protocol):
    """When the output of one attempt came, as finely as the backend notes it. Marks are in order."""

    def marks(self, at_s: float, stdout: float, stderr: float, most: int) -> list[LogMark]:
        """From the last mark that lies at or before all three on, from the oldest if none does; at most so many."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this backend can do here, as found and not as hoped for."""

    gpu: Literal["nvml", "virtual", "none"]
    memory_limit: bool
    cpu_quota: bool
    cpu_affinity: bool
    suspend: Literal["freezer", "sigstop", "none"]
    gpu_suspend: Literal["cuda-checkpoint", "driver", "none"]
    kill_scope: Literal["cgroup", "descendants", "none"]
    outlives_service: bool
    share: Literal["time", "mps"] = "time"  # how jobs on one GPU share it: by turns, or at once (NVIDIA's MPS)
    notes: tuple[str, ...] = ()
    channels: tuple[ChannelKind, ...] = ()  # what `open_channel` offers
    isolation: Literal["none", "user", "sandbox"] = "none"  # what keeps tenants apart
    unprotected: tuple[str, ...] = ()  # what does not: one line each, for whoever starts the service
    containers: str = ""  # what runs images, '' where nothing does
    exact_gpus: bool = True  # a job gets the very GPUs of its launch, also such as another job has


@runtime_checkable
class Recalls(Protocol):
    """A backend that remembers more than it must, so that whoever has an older journal, or none, can go on."""

    def launched(self, key: str) -> LaunchSpec | None:
        """The launch of a key that `observe` names, as far as it is known; None where it is not."""
        ...

    def ended(self, key: str) -> Observed | None:
        """How a key ended that was forgotten while its log was kept; None where nobody knows."""
        ...


@runtime_checkable
class Measures(Protocol):
    """A backend that can tell what its GPUs do."""

    def gpu_use(self) -> tuple[GpuUse, ...]:
        """Every GPU of which it is known, just now. Quick; from one thread at a time, beside all other calls."""
        ...


@runtime_checkable
class Sleeps(Protocol):
    """A backend that can let nodes sleep and wake them. Both calls may be repeated; what came of them `nodes` says."""

    def sleep_nodes(self, names: Sequence[str]) -> None:
        """Let these nodes sleep: `asleep` from then on. `BackendError`, and none sleeps, if something lives on one."""
        ...

    def wake_nodes(self, names: Sequence[str]) -> None:
        """Have them come back: `waking` until they are `up`. Returns at once. Nodes that do not sleep stay so."""
        ...


class Backend(Protocol):
    """Start, watch and stop jobs; see the module for what every implementation owes."""

    def nodes(self) -> list[NodeInfo]:
        """The nodes and what each one has."""
        ...

    def launch(self, spec: LaunchSpec) -> None:
        """Start the job unless its key was ever started. Bad specs raise `InputError` and leave nothing."""
        ...

    def observe(self) -> list[Observed]:
        """Everything that bears our mark, running or ended and not yet forgotten, ordered by key."""
        ...

    def wait_change(self, timeout_s: float | None) -> bool:
        """Sleep until something may have changed (True) or the time is over (False)."""
        ...

    def terminate(self, key: str) -> bool:
        """Ask the whole process group to end (SIGTERM). A suspended job is woken to hear it."""
        ...

    def kill(self, key: str) -> bool:
        """End every process of the job (SIGKILL), also those that left its process group."""
        ...

    def suspend(self, key: str) -> bool:
        """Stop the job where it stands and free its GPU memory where the driver can."""
        ...

    def resume(self, key: str) -> bool:
        """Undo `suspend`."""
        ...

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """Change limits of a running job. None leaves one as it is, infinity lifts a share or memory limit."""
        ...

    def forget(self, key: str, keep_log: bool = False) -> None:
        """Remove all traces of an ended, lost or never started job, but its output if asked.

        Refuses (`BackendError`) while it runs. What a crash interrupts, another call completes.
        """
        ...

    def open_log(self, key: str, stream: Stream) -> LogReader:
        """The output of an attempt: of one that runs, that ended, or whose log was kept. Of others it is empty."""
        ...

    def open_times(self, key: str) -> LogTimes:
        """When that output came. Without marks where that is not known."""
        ...

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """A way into a job that runs; see `channels`. `BackendError` where there is none."""
        ...

    def drop_log(self, key: str) -> None:
        """Delete the kept output of a forgotten attempt. May be repeated."""
        ...

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """Where this job's attempts find and leave checkpoints, made if need be: where the user `asked` for, if so."""
        ...

    def drop_checkpoints(self, job: str) -> None:
        """Delete what is in the folder that the backend chose; not one that a user asked for. May be repeated."""
        ...

    def listen_at(self) -> tuple[str, ...]:
        """Addresses at which the service has to listen for the runtimes of jobs; new jobs call the first one.

        `unix:/path`, or `tcp:host:port` where port 0 stands for one that is free and then stays the same.
        """
        ...

    def capabilities(self) -> Capabilities:
        """What was found here."""
        ...

    def wake(self) -> None:
        """End a `wait_change` that is in progress, from any thread."""
        ...

    def close(self) -> None:
        """Let go of handles. Jobs run on."""
        ...


def check_key(key: str) -> str:
    """The key itself, or an error. Keys become file and cgroup names, so the alphabet is small."""
    if _KEY.fullmatch(key) is None:
        raise InputError(f"launch key {key!r}: use up to 100 letters, digits, '.', '_' and '-'")
    return key


def check_spec(spec: LaunchSpec, nodes: Mapping[str, NodeInfo]) -> None:
    """Refuse what no backend could run, with one line that says what to change."""
    key = check_key(spec.key)
    if spec.argv is None and not spec.script.strip():
        raise InputError(f"job {key}: nothing to run: give `run`")
    if spec.argv is not None and not spec.argv:
        raise InputError(f"job {key}: the command is empty")
    for name, text in (("run", spec.script), ("setup", spec.setup), *(("command", a) for a in spec.argv or ())):
        if "\0" in text:
            raise InputError(f"job {key}: {name} contains a NUL character")
        if len(text.encode("utf-8", "surrogateescape")) >= _ARG_BYTES:
            raise InputError(f"job {key}: {name} is longer than 128 KiB: put it into a file and call that")
    for name, value in spec.env.items():
        if _ENV_NAME.fullmatch(name) is None or "\0" in value:
            raise InputError(f"job {key}: environment variable {name!r} is not one the shell can hold")
    if spec.workdir and (not os.path.isabs(spec.workdir) or "\0" in spec.workdir):
        raise InputError(f"job {key}: workdir '{spec.workdir}' is not an absolute path")
    if spec.cpus is not None and not spec.cpus:
        raise InputError(f"job {key}: an empty set of cores: leave cpus out to use all")
    numbers = (("cpu_share", spec.cpu_share), ("mem_gib", spec.mem_gib), ("gpu_mem_gib", spec.gpu_mem_gib))
    limits = (("stdout_limit_mib", spec.stdout_limit_mib), ("stderr_limit_mib", spec.stderr_limit_mib))
    for name, amount in (*numbers, *limits):
        if amount is not None and not amount > 0:
            raise InputError(f"job {key}: {name} is {amount}: it must be above 0")
    if not 0 <= spec.grace_s < math.inf:
        raise InputError(f"job {key}: grace_s is {spec.grace_s}: it must be 0 or more")
    _check_gpus(spec, nodes)


def _check_gpus(spec: LaunchSpec, nodes: Mapping[str, NodeInfo]) -> None:
    seen: set[tuple[str, int]] = set()
    for name, indexes in spec.gpus:
        node = nodes.get(name)
        if node is None:
            raise InputError(f"job {spec.key}: there is no node '{name}'")
        for index in indexes:
            if not 0 <= index < node.gpus:
                raise InputError(f"job {spec.key}: node '{name}' has no GPU {index}, only {node.gpus}")
            if (name, index) in seen:
                raise InputError(f"job {spec.key}: GPU {index} of node '{name}' is given twice")
            seen.add((name, index))
