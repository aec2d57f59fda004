"""Jobs as they are shown to people. Known to others by `cotenant.service.facade`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from cotenant.core.lifecycle import JobState


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One try at running a job. Times are Unix seconds; lost work is seconds since the last checkpoint."""

    number: int
    state: str
    started_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    why: str = ""
    lost_s: float = 0.0
    nodes: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as shown to people."""

    id: str
    name: str
    tenant: str
    user: str
    state: JobState
    reason: str
    gpus: int
    priority: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    expected_end_s: float | None
    step: int | None
    total_steps: int | None
    step_time_s: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    attempts: tuple[AttemptInfo, ...] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    gpu_busy: float | None = None  # share of the time in which it computes on its busiest GPU, where that is known
    gpu_used_gib: float | None = None
    expected_end_low_s: float | None = None  # it ends between these limits 9 times of 10
    expected_end_high_s: float | None = None
    service: dict[str, Any] | None = None  # how the inference service stands of which it is a replica

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


class JobList(list[JobInfo]):
    """Some jobs, and how many more there are that the limit left out."""

    left_out: int = 0


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What came of something that was asked of one job among several: how it stands, or why it was refused."""

    id: str
    error: str
    job: JobInfo | None


@dataclass(frozen=True, slots=True)
class EventInfo:
    """One record of the journal, as shown to people."""

    seq: int
    time_s: float
    kind: str
    job: str
    data: dict[str, Any]
