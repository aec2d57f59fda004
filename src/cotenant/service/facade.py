"""What the service offers to its doors (HTTP, tests): one method per thing a person can ask for, at two desks.

All methods may be called from any thread. Those that change something return only when the change is in the
journal. A job that the caller may not see does not exist for him: `NotFound`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cotenant.core.errors import CotenantError
from cotenant.core.jobspec import JobSpec
from cotenant.service.asked import EVERY, Which
from cotenant.service.callers import SCOPES as SCOPES
from cotenant.service.callers import Caller as Caller
from cotenant.service.callers import Role as Role
from cotenant.service.job_info import AttemptInfo as AttemptInfo
from cotenant.service.job_info import EventInfo as EventInfo
from cotenant.service.job_info import JobInfo as JobInfo
from cotenant.service.job_info import JobList as JobList
from cotenant.service.job_info import JobOutcome as JobOutcome
from cotenant.service.whatif_watch import WHATIF_BUDGET_S as WHATIF_BUDGET_S
from cotenant.service.whatif_watch import WhatIfWatch as WhatIfWatch
from cotenant.service.window import NodeWindow

if TYPE_CHECKING:
    from cotenant.backends.base import LogReader, LogTimes, Stream
    from cotenant.backends.channels import Channel, ChannelSpec
    from cotenant.service.accounts.asked import AccountDesk
    from cotenant.service.pictures.asked import PictureDesk


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


class JobDesk(Protocol):
    """The desk for jobs."""

    def submit(self, caller: Caller, specs: list[JobSpec], key: str = "", asked: str = "") -> list[list[str]]:
        """Durable when it returns: the ids per spec, several for an array, in order of its indexes.

        The same `key` from the same caller within a day gives the same ids and submits nothing; `asked` is a digest
        of the request, and another one under the same key is a `Conflict`.
        """

    def jobs(self, caller: Caller, which: Which = EVERY, *, limit: int = 1000, skip: int | None = None) -> JobList:
        """Jobs that the caller may see, newest last; without spec and attempts.

        Of more than `limit`: those on GPUs, then suspended, next in line, last ended; with `skip` the next in order.
        """

    def job(self, caller: Caller, job: str) -> JobInfo:
        """One job with spec and attempts."""

    def why(self, caller: Caller, job: str) -> dict[str, Any]:
        """The reason of one job, as `Reason.as_dict`."""

    def deadline(self, caller: Caller, job: str) -> dict[str, Any]:
        """What the policy has told of a job's deadline: `unanswered` until its first decision with the job."""

    def events(
        self, caller: Caller, job: str = "", after: int = 0, limit: int = 1000, newest: bool = False
    ) -> list[EventInfo]:
        """History of one job, or of everything the caller may see: the oldest `limit` of it, or the newest."""

    def wait_events(self, after: int, timeout_s: float) -> int:
        """Block until the journal is past `after` or time is up; its last number."""

    def open_log(self, caller: Caller, job: str, stream: Stream = "stdout", attempt: int = 0) -> LogReader | None:
        """The output of an attempt (0: the newest); None before there is one."""

    def open_times(self, caller: Caller, job: str, attempt: int) -> LogTimes:
        """When the output of an attempt came."""

    def open_channel(self, caller: Caller, job: str, asked: ChannelSpec) -> Channel:
        """A way into a job that runs (a program beside it, its terminal, a port); `Conflict` where there is none."""

    def cancel(self, caller: Caller, job: str, force: bool = False) -> None:
        """Ask a job to end for good. Cancelling a cancelled job is fine; a finished one is a `Conflict`."""

    def hold(self, caller: Caller, job: str) -> None:
        """Keep a pending job from starting; a running one is preempted and then held."""

    def resume(self, caller: Caller, job: str) -> None:
        """Let a held job go on."""

    def requeue(self, caller: Caller, job: str) -> None:
        """Stop a job and let it wait again."""

    def resubmit(self, caller: Caller, which: Which, changes: dict[str, Any]) -> list[list[str]]:
        """New jobs like these, but for some fields; elements of an array become one. Their ids as of `submit`."""

    def change(
        self, caller: Caller, verb: str, which: Which, *, force: bool = False, changes: dict[str, Any] | None = None
    ) -> list[JobOutcome]:
        """Cancel, hold, resume, requeue or set all jobs that are meant; one that refuses does not stop the others."""

    def set(self, caller: Caller, job: str, changes: dict[str, Any]) -> None:
        """Change priority, deadline, max_runtime, retries, name or expected of a job that has not ended."""

    def whatif(self, caller: Caller, policies: list[str], watch: WhatIfWatch | None = None) -> dict[str, Any]:
        """Per job the expected finish now and under each policy: {"now": p, "jobs": [{"id":, p: seconds|None}]}.

        "forecasts" of a job has its intervals by policy. `watch` is kept up to date. Policies for which time was up
        are named under "partial".
        """

    def evaluation(self, caller: Caller) -> dict[str, Any]:
        """How right forecasts were: errors by moment and policy, calibration, and forecasts one by one."""

    def history(self, caller: Caller) -> Iterator[JobInfo]:
        """Finished jobs, oldest first."""


class ClusterDesk(Protocol):
    """The desk for everything else: nodes, policy, tokens, numbers."""

    def nodes(self, caller: Caller) -> list[NodeStatus]:
        """All nodes."""

    def drain(self, caller: Caller, node: str, undo: bool = False) -> None:
        """Let nothing new start on a node (admin); or undo that, and excuse what is wrong with it."""

    def windows(self, caller: Caller) -> list[NodeWindow]:
        """Maintenance and reservations to come or in force."""

    def add_window(self, caller: Caller, window: NodeWindow, gpus: int = 0) -> NodeWindow:
        """Shut nodes for a time (admin). Its id is given; `gpus`: as many nodes as it takes to have so many."""

    def remove_window(self, caller: Caller, window: str) -> None:
        """Give nodes back before their time is over (admin)."""

    def policy(self) -> str:
        """The live policy."""

    def set_policy(self, caller: Caller, policy: str) -> None:
        """Change the live policy (admin)."""

    def tokens(self, caller: Caller) -> list[TokenInfo]:
        """All tokens (admin)."""

    def create_token(
        self, caller: Caller, name: str, role: Role, tenant: str, *,
        scopes: tuple[str, ...] = (), lasts_s: float | None = None,
    ) -> tuple[TokenInfo, str]:  # fmt: skip
        """A new token and its secret, which is shown this once (admin). `lasts_s`: for so long."""

    def revoke_token(self, caller: Caller, token: str, *, force: bool = False) -> None:
        """Make a token useless at once (admin); the last of an admin only by force."""

    def authenticate(self, secret: str) -> Caller | None:
        """Whose secret this is, in time that tells nothing of others. Never waits."""

    def holder(self, token: str) -> Caller | None:
        """Whose token of this id is, while it is good. Never waits."""

    def prove(self, hint: str, nonce: str, address: str) -> str:
        """That this is the service of the token of this hint (`cotenant.core.proof`); '' if not. Never waits."""

    def backup(self, caller: Caller, path: str) -> None:
        """A consistent copy of the journal at a new file under the service's own folder (admin)."""

    def shut_down(self, caller: Caller, jobs: str) -> None:
        """End the service (admin): `keep` leaves its jobs running, `stop` has them save and wait for the next start."""

    def metrics(self) -> dict[str, float]:
        """Numbers for Prometheus: name (with labels in braces) -> value."""

    def ready(self) -> bool:
        """Whether it has reconciled with what really runs."""

    def trouble(self) -> str:
        """Why it takes no changes just now: not reconciled yet, journal full or away. Empty when it is ready."""


class TenantDesk(Protocol):
    """The desk for the tree of tenants. Changes hold from the next decision on."""

    def known(self, caller: Caller) -> Caller:
        """The caller with the tenants that he administers. Never waits."""

    def tenants(self, caller: Caller) -> dict[str, Any]:
        """All tenants, what each holds now, how past use counts, and what is said of nodes."""

    def add(self, caller: Caller, name: str, parent: str, fields: dict[str, Any]) -> str:
        """A new tenant, with fields as in the cluster file; what was done, in words."""

    def set(self, caller: Caller, name: str, fields: dict[str, Any]) -> str:
        """Other fields of a tenant; None: as by default. Limits and GPU types are changed one by one."""

    def remove(self, caller: Caller, name: str) -> str:
        """Take a tenant away that has no children and no unfinished jobs."""

    def share(self, caller: Caller, fields: dict[str, Any]) -> str:
        """How past use counts and how soon GPUs come back: half_life, min_run, reserve_after (admin)."""

    def replace(self, caller: Caller, tree: dict[str, Any], groups: list[dict[str, Any]]) -> tuple[str, list[str]]:
        """The tree and groups of nodes of a cluster file (admin); what was done, and what of it matches no node."""


class Service(Protocol):
    """The whole of it."""

    @property
    def desk(self) -> JobDesk:
        """Where people ask for jobs."""

    @property
    def admin(self) -> ClusterDesk:
        """Where people ask about the cluster."""

    @property
    def tenants(self) -> TenantDesk:
        """Where people ask who shares the cluster."""

    @property
    def accounts(self) -> AccountDesk:
        """Where people ask who has used what."""

    @property
    def pictures(self) -> PictureDesk:
        """Where people look at the whole."""
