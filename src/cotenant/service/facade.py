"""What the service and whoever asks it hand each other: who asks, which jobs are meant, answers, and what goes wrong.

What can be asked for is said where it is answered: `desk.desk.Desk` for jobs, `desk.admin.Admin` for nodes, policy and
tokens, `desk.tenants.LiveTenants`, `accounts.desk.Accounts`, `pictures.desk.PictureBoard`. All of their methods may be
called from any thread. Those that change something return only when the change is in the journal. A job that the caller
may not see does not exist for him: `NotFound`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.core.lifecycle import JobState

SCOPES = ("read", "submit", "manage", "admin", "metrics")
WHATIF_BUDGET_S = 30.0


class NotFound(CotenantError):
    """No such job, node or token, or not yours."""


class Conflict(CotenantError):
    """The thing is not in a state that allows it, e.g. cancelling a finished job."""


class NotAllowed(CotenantError):
    """You may see it, but this is for others to do."""


class Unavailable(CotenantError):
    """The service cannot take this now (disk full, shutting down, not ready yet); nothing was lost."""


class TooMany(Unavailable):
    """The caller has had his share of something; others have not. `retry_s`: when to try again, 0 if nobody knows."""

    def __init__(self, text: str, retry_s: float = 0.0) -> None:
        super().__init__(text)
        self.retry_s = retry_s


class Role(StrEnum):
    """What a token may do: viewer reads, user also submits and touches his tenant's jobs, admin everything."""

    ADMIN = "admin"
    USER = "user"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. An empty tenant (admins, and viewers made without one) sees every tenant.

    `scopes` narrow what the role may: read (look), submit (new jobs), manage (cancel, hold, change, ...), admin
    (nodes, policy, tokens, ...), metrics (numbers only); none given: all that the role may. `token`: the id of his
    token. `administers`: tenants whose jobs he looks after beside his own, by the tree of tenants.
    """

    name: str
    role: Role
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    token: str = field(default="", compare=False)
    administers: frozenset[str] = frozenset()

    def sees(self, tenant: str) -> bool:
        """Whether the jobs of a tenant exist for him."""
        return self.is_of(tenant) or tenant in self.administers

    def is_of(self, tenant: str) -> bool:
        """Whether he may run code as this tenant."""
        return self.tenant in ("", tenant)

    def must_be(self, role: Role) -> None:
        """Raise unless he may do what this role may."""
        ranks = {Role.VIEWER: 0, Role.USER: 1, Role.ADMIN: 2}
        if ranks[self.role] < ranks[role]:
            raise CotenantError(f"this needs the role {role}")


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs are meant: all that pass every filter. An empty filter lets all pass.

    `jobs` are ids, arrays (`7`), elements (`7.3` or `7_3`), ranges (`7_[1-4,9]`) or names.
    """

    jobs: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


EVERY = Which()


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


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as shown to people."""

    name: str
    gpu_type: str
    gpus: int
    gpus_used: int
    cpus: int
    mem_gib: float
    state: str  # up, draining, drained, maintenance, reserved, asleep, waking, down
    jobs: tuple[str, ...] = ()
    gpus_shared: int = 0  # of those used, the ones with several jobs
    gpu_mem_gib: float = 0.0  # of each GPU; 0 where not known
    gpu_busy: tuple[float, ...] = ()  # of each GPU: share of the time in which it computes; none where not known
    gpu_used_gib: tuple[float, ...] = ()  # of the memory of each
    dedicated: tuple[str, ...] = ()  # tenants whose jobs alone it takes; none: everybody's
    labels: dict[str, str] = field(default_factory=dict)
    ready_s: float = 0.0  # of one that wakes: when it is believed to be up
    gpus_out: int = 0  # GPUs that are left out because something is wrong with them
    faults: tuple[dict[str, Any], ...] = ()  # what is wrong with it: node, gpu (-1: all of it), kind, why, since_s, ...


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret."""

    id: str
    name: str
    role: Role
    tenant: str
    created_s: float
    revoked: bool
    scopes: tuple[str, ...] = ()
    expires_s: float | None = None
    used_s: float | None = None  # last, to about an hour


@dataclass(slots=True)
class WhatIfWatch:
    """How far a what-if has come, for whoever waits for it. Each policy is played forward for at most `budget_s`."""

    budget_s: float = WHATIF_BUDGET_S
    policy: str = ""  # the one that is played now
    done: int = 0  # jobs that it has finished
    jobs: int = 0
    partial: list[str] = field(default_factory=list)  # policies for which time was up
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # by policy, what it told jobs with deadlines

    def hear(self, done: int) -> None:
        """So many jobs have come to their end in the play."""
        self.done = done

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"policy": self.policy, "done": self.done, "jobs": self.jobs}
