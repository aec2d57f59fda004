"""The wire protocol between a job and the service: newline-delimited JSON over a stream,
which is a local unix socket or a TCP connection (`_address`).

Each line is one object with a `type`, at most `MAX_LINE` bytes long. The job opens with `hello`; the service answers
`welcome` with the settings to start from, or `refused`, and closes. Afterwards both sides speak when they have
something to say; nothing is acknowledged. A job reconnects when the service comes back and then repeats its last
`restored` and `checkpoint`, so these arrive at least once and repeats are harmless; `progress` may be lost.

    job -> service   hello      version, token, job, attempt, pid, untouched, waits
                     progress   step, total, step_time_s, metrics, saves, age_s, ready_s, ready_step, saving_s,
                                stages, waited_s, busy    (at most about five a second)
                     built      step                the first step comes next
                     restored   step, path, seconds
                     checkpoint step, path, seconds
                     stopping   step, saved         the process ends now
                     declined   step, reason        asked to stop, cannot save, goes on: take the next rung
                     done       step
    service -> job   welcome    settings            (only those the scheduler has an opinion about)
                     refused    reason
                     set        settings            seen by the job at its next step boundary
                     stop       grace_s
                     pause      seconds             stand still so long at the next step boundary, once
                     go                             the GPUs are yours
                     turns      where, me, line     whose stages take turns with this job's; nobody's where it is empty

A step number is the count of finished steps. Unknown fields and unknown types are ignored, so that either side may
learn new ones; `VERSION` changes only when an old peer would misunderstand. Numbers that JSON lacks (a loss that is
not a number) travel as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

VERSION = 1
MAX_LINE = 64 * 1024


class ProtocolError(ValueError):
    """A line that is not a valid message."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the scheduler may change in a running job; None means "no opinion, keep what you have"."""

    batch_size: int | None = None
    accumulation: int | None = None
    workers: int | None = None
    gpus: int | None = None
    throttle_s: float | None = None
    learning_rate_scale: float | None = None
    gpu_mem_gib: float | None = None  # of each GPU: what it is granted of its peak

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("accumulation", 1), ("workers", 0), ("gpus", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ProtocolError(f"{name} must be at least {least}, not {value}")
        if self.throttle_s is not None and not 0 <= self.throttle_s < math.inf:
            raise ProtocolError(f"throttle_s must be finite and not negative, not {self.throttle_s}")
        if self.learning_rate_scale is not None and not 0 < self.learning_rate_scale < math.inf:
            raise ProtocolError(f"learning_rate_scale must be finite and positive, not {self.learning_rate_scale}")
        if self.gpu_mem_gib is not None and not 0 < self.gpu_mem_gib < math.inf:
            raise ProtocolError(f"gpu_mem_gib must be finite and positive, not {self.gpu_mem_gib}")

    def given(self) -> dict[str, int | float]:
        """The fields that carry an opinion."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(Settings))
        return {name: value for name, value in pairs if value is not None}

    def numbers(self) -> list[float]:
        """One number per field, NaN for no opinion, to hand on from process to process."""
        values = (getattr(self, item.name) for item in dataclasses.fields(Settings))
        return [math.nan if value is None else float(value) for value in values]

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> Settings:
        """The inverse of `numbers`."""
        pairs = zip(dataclasses.fields(Settings), numbers, strict=True)
        given = {item.name: value for item, value in pairs if not math.isnan(value)}
        whole = {"batch_size", "accumulation", "workers", "gpus"}
        return Settings(**{name: int(value) if name in whole else value for name, value in given.items()})  # type: ignore[arg-type]

    def updated(self, other: Settings) -> Settings:
        """These settings with the other's opinions on top, as plain Settings."""
        return Settings(**{**self.given(), **other.given()})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is calling. The token is kept out of `repr`, and so out of logs.

    `untouched`: it would wait here for `go`, and has not used a GPU yet. `waits`: it was started ahead of its GPUs.
    """

    type: ClassVar[str] = "hello"
    token: str = field(repr=False)
    job: str
    attempt: int
    pid: int
    version: int = VERSION
    untouched: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Steps done so far, of how many, the median of the last steps' times, and the latest metrics.

    `saves` says whether the job could write a checkpoint if asked to stop; where it could not, asking is in vain.
    `age_s`: how old the process is; `ready_s`: how old it was when it had finished its first step, which was number
    `ready_step` (0 before that); `saving_s`: what it has spent in checkpoints since. `stages`: seconds per step in each
    stage that the job marks, and in none (`other`), without `waited_s`, which it waits per step for its turns (0: it
    takes none); `busy`: part of its steps in which it did not wait for input, 0 where the script does not say. Runtimes
    of before say none of it.
    """

    type: ClassVar[str] = "progress"
    step: int
    total: int | None = None
    step_time_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    saves: bool = False
    age_s: float = 0.0
    ready_s: float = 0.0
    ready_step: int = 0
    saving_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    waited_s: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Built:
    """Everything is built and no step was made: here a job that was started ahead of its GPUs waits for `go`."""

    type: ClassVar[str] = "built"
    step: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The job continues from this checkpoint; loading it took so long."""

    type: ClassVar[str] = "restored"
    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint is complete and durable."""

    type: ClassVar[str] = "checkpoint"
    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """The process ends now; saved says whether the work up to `step` is in a checkpoint."""

    type: ClassVar[str] = "stopping"
    step: int
    saved: bool


@dataclass(frozen=True, slots=True)
class Declined:
    """Asked to stop, but the work cannot be saved, so the job goes on. Suspending it loses nothing."""

    type: ClassVar[str] = "declined"
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The script has left `with runtime.job()` without an error."""

    type: ClassVar[str] = "done"
    step: int


@dataclass(frozen=True, slots=True)
class Welcome(Settings):
    """The service knows the job; these settings hold from now on."""

    type: ClassVar[str] = "welcome"


@dataclass(frozen=True, slots=True)
class Set(Settings):
    """Change settings at the next step boundary."""

    type: ClassVar[str] = "set"


@dataclass(frozen=True, slots=True)
class Stop:
    """The scheduler wants the GPUs: save and end within the grace period."""

    type: ClassVar[str] = "stop"
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Stand still so long at the next step boundary, once: the job beside this one is measured meanwhile."""

    type: ClassVar[str] = "pause"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Go:
    """The GPUs are the job's now. Who was not started ahead need not wait for it, and who does not know it never is."""

    type: ClassVar[str] = "go"


@dataclass(frozen=True, slots=True)
class TakeTurns:
    """The stages of these jobs, named by numbers in the order of their turns, take turns: `me` is the one that is told.

    `where` is the same for all who share some GPUs, and no others. An empty line: the job is alone.
    """

    type: ClassVar[str] = "turns"
    where: str = ""
    me: int = 0
    line: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        plain = self.where and "/" not in self.where and not self.where.startswith(".")
        if self.line and not (plain and self.me in self.line):
            raise ProtocolError("turns need a plain name, and a line with the job in it")


@dataclass(frozen=True, slots=True)
class Refused:
    """The service does not know this job, its token or its version of the protocol."""

    type: ClassVar[str] = "refused"
    reason: str


JobMessage: TypeAlias = Hello | Progress | Built | Restored | Checkpoint | Stopping | Declined | Done
ServiceMessage: TypeAlias = Welcome | Set | Stop | Pause | Go | TakeTurns | Refused
Message: TypeAlias = JobMessage | ServiceMessage

_KINDS: dict[str, type[Message]] = {
    kind.type: kind
    for kind in (
        Hello,
        Progress,
        Built,
        Restored,
        Checkpoint,
        Stopping,
        Declined,
        Done,
        Welcome,
        Set,
        Stop,
        Pause,
        Go,
        TakeTurns,
        Refused,
    )
}


def encode(message: Message) -> bytes:
    """One line, newline included."""
    body: dict[str, Any] = {"type": message.type}
    for item in dataclasses.fields(message):
        value = getattr(message, item.name)
        if value is not None:
            body[item.name] = _plain(value)
    line = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise ProtocolError(f"a {message.type} message of {len(line)} bytes; at most {MAX_LINE} are allowed")
    return line


def decode(line: bytes) -> Message | None:
    """The message on this line; None when its type is not known here; ProtocolError when it is malformed."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise ProtocolError("not an object with a type")
    kind = _KINDS.get(body["type"])
    return None if kind is None else _build(kind, body)


def settings_from(body: Mapping[str, Any]) -> Settings:
    """Settings from a JSON object, as in COTENANT_SETTINGS."""
    settings: Settings = _build(Settings, body)
    return settings


def _plain(value: Any) -> Any:
    """The value as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value


def _build(kind: Any, body: Mapping[str, Any]) -> Any:
    values = {}
    for item in dataclasses.fields(kind):
        if item.name in body:
            values[item.name] = _read(item.name, str(item.type), body[item.name])
    try:
        return kind(**values)
    except TypeError as error:
        raise ProtocolError(f"incomplete message: {error}") from None


def _read(name: str, wanted: str, value: Any) -> Any:
    """The value checked against the annotation of its field; the annotations above are all there are."""
    if value is None and wanted.endswith(" | None"):
        return None
    wanted = wanted.removesuffix(" | None")
    if wanted == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if wanted == "float" and isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    if wanted == "bool" and isinstance(value, bool):
        return value
    if wanted == "str" and isinstance(value, str):
        return value
    if wanted == "list[int]" and isinstance(value, list):
        return [_read(name, "int", entry) for entry in value]
    if wanted == "dict[str, float]" and isinstance(value, dict):
        return {key: _read(f"{name}.{key}", "float", entry) for key, entry in value.items()}
    raise ProtocolError(f"{name} must be {wanted}, not {value!r}"[:200])
