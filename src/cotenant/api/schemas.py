"""What goes in and out, for the checks on requests and for the OpenAPI document.

Answers are written from the dataclasses of `service.facade` without passing through these models, whose fields
are taken from there; what differs is that JSON has lists, and null for a number that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from cotenant.api.limits import MOST_JOBS
from cotenant.api.logs import CURSOR, OLDER
from cotenant.backends.base import Stream as OneStream
from cotenant.core.lifecycle import JobState
from cotenant.service.asked import Which
from cotenant.service.facade import AttemptInfo, EventInfo, JobInfo, JobOutcome, NodeStatus, Role, TokenInfo
from cotenant.service.window import NodeWindow

_M = TypeVar("_M", bound=BaseModel)

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
_LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
_POLICY = r"^[A-Za-z][A-Za-z0-9_-]{0,62}(:[A-Za-z0-9_=,.+\[\]-]{0,400})?$"
MOST_SEQ = 2**62

JobId = Annotated[str, Path(pattern=_NAME, description="Job id.")]
NodeName = Annotated[str, Path(pattern=_NAME, description="Node name.")]
TokenId = Annotated[str, Path(pattern=_NAME, description="Token id, not its secret.")]
After = Annotated[int, Query(ge=-1, le=MOST_SEQ, description="Events after this number; -1: only new ones.")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="At most so many.")]
Wait = Annotated[float, Query(ge=0, le=30, description="Wait up to so many seconds for the first event.")]
Attempt = Annotated[int, Query(ge=0, le=1_000_000, description="0: the newest.")]
Offset = Annotated[
    str,
    Query(
        pattern=f"^(-?[0-9]{{1,15}}|{CURSOR}|{OLDER})$",
        description="Bytes from the oldest kept, -N for the last N, or what X-Offset-Next said.",
    ),
]
Bytes = Annotated[int, Query(ge=1, le=8 << 20, description="At most so many bytes.")]
Tail = Annotated[int | None, Query(ge=0, le=100_000, description="Begin with the last so many lines.")]
Since = Annotated[float | None, Query(ge=0, le=1e11, description="Begin with what came at this Unix time or later.")]
States = Annotated[list[JobState], Query(max_length=8, description="Only these states; may be repeated.")]
_Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,2048}$")]
_Texts = Annotated[list[_Text], Field(max_length=1000)]
Ids_ = Annotated[list[_Text], Query(alias="id", max_length=1000, description="Ids, arrays 7, ranges 7_[1-4], names.")]
Names = Annotated[list[_Text], Query(alias="name", max_length=100, description="Only jobs of these names.")]
Users = Annotated[list[_Text], Query(alias="user", max_length=100, description="Only jobs of these users.")]
Tenants = Annotated[list[_Text], Query(alias="tenant", max_length=100, description="Only jobs of these tenants.")]
Skip = Annotated[int | None, Query(ge=0, le=10**9, description="Pages in order: those that follow so many.")]
TenantName = Annotated[str, Path(pattern=r"^[^\x00-\x1f\x7f/]{1,200}$", description="Name of a tenant.")]
WindowId = Annotated[str, Path(pattern=_NAME, description="Id of a maintenance or a reservation.")]


class Verb(StrEnum):
    """What can be done to several jobs at once."""

    CANCEL = "cancel"
    HOLD = "hold"
    RESUME = "resume"
    REQUEUE = "requeue"
    SET = "set"


class Stream(StrEnum):
    """Which output of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"
    MERGED = "merged"

    @property
    def names(self) -> tuple[OneStream, ...]:
        """As backends call them."""
        return ("stdout", "stderr") if self is Stream.MERGED else ("stderr",) if self is Stream.STDERR else ("stdout",)


class Encoding(StrEnum):
    """How followed output is sent: as text, or byte for byte."""

    TEXT = "text"
    BASE64 = "base64"


class Flag(StrEnum):
    """Yes or no in a query, in one spelling."""

    TRUE = "true"
    FALSE = "false"


Newest = Annotated[Flag, Query(description="The newest of them instead of the oldest; does not wait.")]

_TEXT = {"type": "string"}
_AMOUNT = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 10**9}
JOB_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["run"],
    "additionalProperties": False,
    "properties": {
        "run": {"type": "string", "minLength": 1},
        "name": {"type": "string", "pattern": _LABEL},
        "setup": _TEXT,
        "workdir": _TEXT,
        "tenant": {"type": "string", "pattern": _LABEL},
        "model": _TEXT,
        "image": _TEXT,
        "env": {"type": "object", "additionalProperties": _TEXT},
        "gpus": {"anyOf": [_WHOLE, {"type": "string", "pattern": r"^([A-Za-z0-9][A-Za-z0-9_.-]*:)?[0-9]{1,9}$"}]},
        "cpus": {"type": "number", "minimum": 0},
        "mem": _AMOUNT,
        "gpu_mem": _AMOUNT,
        "nodes": _WHOLE,
        "priority": {"type": "integer", "minimum": -(10**9), "maximum": 10**9},
        "deadline": _AMOUNT,
        "max_runtime": _AMOUNT,
        "expected": _AMOUNT,
        "retries": _WHOLE,
        "elastic": {"type": "object", "properties": {"min_gpus": _WHOLE, "max_gpus": _WHOLE}},
        "batch": {"type": "object", "properties": {"size": _WHOLE, "min": _WHOLE, "max": _WHOLE}},
        "checkpoint": {"type": "object", "properties": {"dir": _TEXT, "interval": _AMOUNT}},
        "preemptible": {"type": "boolean"},
        "exclusive": {"type": "boolean"},
        "movable": {"type": "boolean"},
        "weight": {"type": "number", "minimum": 0.01, "maximum": 100},
        "tty": {"type": "boolean"},
        "array": {"type": "string", "examples": ["0-99", "1,3,5", "0-99%5"]},
        "after": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        "notify": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": 10}, {"type": "object"}]},
    },
    "examples": [{"run": "python train.py", "gpus": 1}],
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Submission(_Asked):
    """Jobs as in the YAML file."""

    jobs: list[Annotated[dict[str, Any], WithJsonSchema(JOB_SCHEMA)]] = Field(min_length=1, max_length=MOST_JOBS)


class Draft(_Asked):
    """Jobs as somebody is about to write them, right or not."""

    jobs: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_JOBS)


_CHANGED_TIME = Annotated[
    float | str | None, Field(description="Seconds, or e.g. 30m, 2h; after submission for a deadline.")
]


class Changes(_Asked):
    """What may change about a job that has not ended; fields left out stay as they are."""

    priority: int | None = Field(None, ge=-(10**9), le=10**9)
    deadline: _CHANGED_TIME = None
    max_runtime: _CHANGED_TIME = None
    expected: _CHANGED_TIME = None
    retries: int | None = Field(None, ge=0, le=10**9)
    gpus: int | None = Field(None, ge=1, le=10**9, description="Of an elastic job: from its next step boundary on.")
    name: str | None = Field(None, pattern=_LABEL)


class _Meant(_Asked):
    """Which jobs: those that pass every filter that is given."""

    jobs: _Texts = []
    states: Annotated[list[Annotated[JobState, Field(strict=False)]], Field(max_length=8)] = []
    names: _Texts = []
    users: _Texts = []
    tenants: _Texts = []

    def which(self) -> Which:
        """The same as a value."""
        states = tuple(str(state) for state in self.states)
        return Which(tuple(self.jobs), states, tuple(self.names), tuple(self.users), tuple(self.tenants))


class ManyChanges(_Meant):
    """Several jobs, and what is to be done to them."""

    all: bool = Field(False, description="Without any filter: every unfinished job that you may see.")
    force: bool = Field(False, description="Cancel by SIGKILL, at once.")
    changes: Changes | None = Field(None, description="For set.")


class Resubmission(_Meant):
    """Old jobs, and what shall be different about the new ones, as in the YAML file."""

    changes: dict[str, Any] = Field({}, max_length=40)


class NewWindow(_Asked):
    """When which nodes are shut, and to whom they stay open. No nodes: all, or as few as have so many GPUs."""

    kind: str = Field(pattern="^(maintenance|reservation)$")
    nodes: Annotated[list[Annotated[str, Field(pattern=_NAME)]], Field(max_length=10_000)] = []
    gpus: int = Field(0, ge=0, le=10**9)
    from_s: float = Field(ge=0, le=1e12, description="Unix seconds.")
    to_s: float = Field(ge=0, le=1e12, description="Unix seconds.")
    tenant: str = Field("", max_length=63)
    user: str = Field("", max_length=63)
    note: str = Field("", max_length=200)


class NewTenant(_Asked):
    """A tenant, with fields as in the cluster file."""

    name: str = Field(pattern=_LABEL)
    parent: str = Field("", max_length=200)
    fields: dict[str, Any] = Field({}, max_length=40)


class TenantChange(_Asked):
    """Fields of a tenant as in the cluster file, and its `parent`; null: as by default."""

    fields: dict[str, Any] = Field(min_length=1, max_length=40)


class FairShare(_Asked):
    """How past use counts, and how soon GPUs come back; seconds, or e.g. 7d. Null: as by default."""

    half_life: float | str | None = None
    min_run: float | str | None = None
    reserve_after: float | str | None = None


class NodesOf(_Asked):
    """Nodes of one group of a cluster file."""

    count: int = Field(ge=1, le=10**6)
    gpus_per_node: int = Field(ge=1, le=10**4)
    gpu_type: str = Field("gpu", max_length=200)
    dedicated: _Texts = []
    labels: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field([], max_length=100)
    names: _Texts = []


class ClusterFile(_Asked):
    """What a cluster file says of tenants and nodes."""

    fair_share: dict[str, Any] = {}
    tenants: dict[str, Any] = {}
    groups: list[NodesOf] = Field([], max_length=10_000)


class PolicyChange(_Asked):
    """The policy to go on with."""

    policy: str = Field(pattern=r"^[!-~]([ -~]{0,510}[!-~])?$")


class WhatIf(_Asked):
    """Alternatives to try: names, not files, because any user may ask."""

    policies: list[Annotated[str, Field(pattern=_POLICY)]] = Field(min_length=1, max_length=8)
    later: bool = Field(False, description="Where it takes long, answer with 202 and how far it has come.")


class TrialQuestion(_Asked):
    """What is to be otherwise than now. No policies: the live one. `nodes` more like the node `like`, or the first."""

    policies: list[Annotated[str, Field(pattern=_POLICY)]] = Field([], max_length=8)
    jobs: list[Annotated[dict[str, Any], WithJsonSchema(JOB_SCHEMA)]] = Field([], max_length=100)
    nodes: int = Field(0, ge=0, le=1000)
    like: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$")
    tenants: dict[Annotated[str, Field(pattern=_LABEL)], dict[str, Any]] = Field({}, max_length=100)
    later: bool = Field(False, description="Where it takes long, answer with 202 and how far it has come.")


class TrialEnd(BaseModel):
    """When a job would start and end; it ends between the limits 9 times of 10."""

    expected_start_s: float | None
    expected_end_s: float
    expected_end_low_s: float | None
    expected_end_high_s: float | None


class TrialJob(BaseModel):
    """A job in each column; `new`: it is not submitted."""

    id: str
    name: str
    tenant: str
    state: str
    gpus: int
    new: bool
    ends: dict[str, TrialEnd | None]


class TrialAnswer(BaseModel):
    """Columns: the live policy as it is now, then each policy with what is supposed."""

    at_s: float
    now: str
    columns: list[str]
    partial: list[str]
    jobs: list[TrialJob]
    deadlines: dict[str, list[dict[str, Any]]]


class CheckedJobs(BaseModel):
    """Jobs that would be taken, with defaults, of an array its first element; or why they would not."""

    jobs: list[dict[str, Any]]
    error: str


class Played(BaseModel):
    """How far a what-if has come with one policy: jobs that have finished, of how many."""

    policy: str
    done: int
    jobs: int


class WhatIfProgress(BaseModel):
    """A what-if that is under way."""

    id: str
    progress: Played


class SignIn(_Asked):
    """What a browser signs in with: a token, or the code of a link from `cotenant open`."""

    token: str = Field("", max_length=8192)
    code: str = Field("", max_length=200)

    @model_validator(mode="after")
    def _one_of_them(self) -> SignIn:
        if bool(self.token) == bool(self.code):
            raise ValueError("give a token or a code")
        return self


class SignedIn(BaseModel):
    """Who somebody is and what he may; `until_s`: when his browser has to sign in again."""

    name: str
    role: Role
    tenant: str
    scopes: list[str]
    administers: list[str]
    until_s: float | None
    version: str


class WhoAmI(BaseModel):
    """Who asks; null for nobody."""

    user: SignedIn | None


class SignInCode(BaseModel):
    """Opens one session, within so many seconds."""

    code: str
    lasts_s: float


class NewToken(_Asked):
    """Who gets a token, and for what."""

    name: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]{0,62})?$")
    role: Annotated[Role, Field(strict=False)]
    tenant: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$")
    scopes: list[Literal["read", "submit", "manage", "admin", "metrics"]] = Field([], max_length=5)
    expires: float | str | None = Field(None, description="Seconds, or e.g. 12h, 30d; without: never.")


class BackupTo(_Asked):
    """A new file's name in the service's own folder."""

    path: str = Field(pattern=_NAME)


class ShutDown(_Asked):
    """What becomes of the jobs: they run on, or save and wait for the next start."""

    jobs: Literal["keep", "stop"]


def _shows(source: type[Any]) -> Callable[[type[_M]], type[_M]]:
    """The model with all fields of a dataclass, in its order; those written in the model itself as they are there."""
    hints = get_type_hints(source)

    def fill(model: type[_M]) -> type[_M]:
        own = {name: one.annotation for name, one in model.model_fields.items()}
        types: dict[str, Any] = {one.name: (own.get(one.name, hints[one.name]), ...) for one in fields(source)}
        made: Any = create_model(model.__name__, __doc__=model.__doc__, __module__=__name__, **types)
        return cast(type[_M], made)

    return fill


class Error(BaseModel):
    """Every refusal."""

    error: str


class Ids(BaseModel):
    """Ids per job that was sent, several for an array, in order of its indexes."""

    ids: list[list[str]]


@_shows(AttemptInfo)
class Try(BaseModel):
    """One try at running a job."""

    lost_s: float | None
    nodes: list[Any]


@_shows(JobInfo)
class Job(BaseModel):
    """A job as shown to people. Times are Unix seconds."""

    metrics: dict[str, float | None]
    attempts: list[Try]


class Jobs(BaseModel):
    """A listing, and how many more there are that the limit left out."""

    jobs: list[Job]
    left_out: int


@_shows(JobOutcome)
class Came(BaseModel):
    """What came of something for one job: how it stands, or why it was refused."""

    job: Job | None


class Outcomes(BaseModel):
    """What came of something for several jobs."""

    jobs: list[Came]


@_shows(NodeWindow)
class Shut(BaseModel):
    """A maintenance or a reservation. No nodes: all. Times are Unix seconds."""

    nodes: list[str]


class Windows(BaseModel):
    """A listing, by the time at which they begin."""

    windows: list[Shut]


@_shows(NodeStatus)
class Node(BaseModel):
    """A node as shown to people."""


class Nodes(BaseModel):
    """A listing."""

    nodes: list[Node]


@_shows(EventInfo)
class Event(BaseModel):
    """One record of the journal."""


class Events(BaseModel):
    """Some events, and where to go on."""

    events: list[Event]
    next: int


@_shows(TokenInfo)
class Token(BaseModel):
    """A token without its secret."""


class Tokens(BaseModel):
    """A listing."""

    tokens: list[Token]


class CreatedToken(BaseModel):
    """A token and, this once, its secret."""

    token: Token
    secret: str
    fingerprint: str


class Proof(BaseModel):
    """At which address the service was reached, and that it knows the token: see `cotenant.core.proof`."""

    at: str
    proof: str


class SignOnAt(BaseModel):
    """Where people sign on."""

    issuer: str
    client: str
    scope: str
    secret: str


class Deeds(BaseModel):
    """Who did what, oldest first."""

    audit: list[dict[str, Any]]


class TenantsShown(BaseModel):
    """The tree of tenants with what each holds, and what is said of nodes; `done`: what a change has done."""

    tenants: list[dict[str, Any]]
    fair_share: dict[str, float | None]
    nodes: dict[str, dict[str, Any]]
    changed_by: str
    changed_s: float
    done: str = ""
    unmatched: list[str] = []


class LivePolicy(BaseModel):
    """The policy in force."""

    policy: str


class KnownPolicy(BaseModel):
    """A policy that is registered."""

    name: str
    description: str
    preemptive: bool
    source: str


class KnownPolicies(BaseModel):
    """A listing."""

    policies: list[KnownPolicy]


class SimulationShown(BaseModel):
    """A comparison of policies: `runs` are done; of the present one, under `policy`, `done` of so many `jobs`."""

    id: str
    workload: str
    cluster: str
    policies: list[str]
    state: Literal["running", "done", "failed", "cancelled"]
    error: str
    began_s: float
    ended_s: float | None
    policy: str
    done: int
    jobs: int
    runs: int
    notes: list[str]


class SimulationsShown(BaseModel):
    """A listing."""

    simulations: list[SimulationShown]


class BackupDone(BaseModel):
    """Where the copy is, in the service's own folder."""

    path: str


class Health(BaseModel):
    """Well enough to answer."""

    status: str


class Alert(BaseModel):
    """Something that needs attention: `bad`, `warn` or `info`."""

    level: str
    text: str
    jobs: list[str]
    nodes: list[str]


class Overview(BaseModel):
    """The cluster at a glance. GPUs of tenants that you do not see are under an empty name."""

    at_s: float
    policy: str
    jobs: dict[str, int]
    waiting: int
    longest_wait_s: float
    gpus: int
    gpus_used: int
    gpus_shared: int
    gpus_by_tenant: dict[str, int]
    nodes: dict[str, int]
    decisions: dict[str, float]
    alerts: list[Alert]


class Queue(BaseModel):
    """Places of waiting jobs, of `count` that wait in all."""

    at_s: float
    count: int
    waiting: dict[str, int]


class GanttJob(BaseModel):
    """A job of which there are bars."""

    id: str
    name: str
    tenant: str
    user: str
    model: str
    state: str


class Gantt(BaseModel):
    """Bars [GPU, job, from, to, kind]: GPU and job by place in the lists; kind 0 work, 1 start-up, 2 suspended."""

    at_s: float
    from_s: float
    to_s: float
    gpus: list[list[Any]]
    jobs: list[GanttJob]
    bars: list[list[float]]
    left_out: int


class LedgerRow(BaseModel):
    """One stop: what it cost in GPU-seconds, and who started on its GPUs at once."""

    at_s: float
    job: str
    name: str
    tenant: str
    user: str
    cause: str
    kind: Literal["failure", "stop", "other"]
    why: str
    gpus: int
    lost_gpu_s: float
    leave_gpu_s: float
    back_gpu_s: float
    cost_gpu_s: float
    waited_s: float | None
    gained: list[dict[str, Any]]
    gained_gpu_s: float


class Ledger(BaseModel):
    """Stops, newest first, and sums by cause."""

    at_s: float
    from_s: float
    to_s: float | None
    rows: list[LedgerRow]
    causes: list[dict[str, Any]]


Reason = dict[str, Any]
SENT: dict[str, Any] = {
    "description": "One server-sent event; data is JSON.",
    "type": "object",
    "required": ["event", "data"],
    "properties": {"event": _TEXT, "data": _TEXT, "id": _TEXT},
}

_TEXTS = {
    401: "No valid token.",
    403: "The token is good, but not for this.",
    404: "No such thing, or not yours.",
    409: "Not in a state that allows it.",
    408: "The body took too long.",
    413: "The body is too large.",
    422: "The request is wrong; the text says where.",
    429: "You have had your share for now; others have not.",
    503: "Not now (disk full, starting, shutting down, too many streams); nothing was lost.",
}


def answers(model: Any, *more: int, status: int = 200, text: str = "Done.") -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route: its own, and those that any route may give."""
    codes = sorted({401, 403, 408, 413, 422, 429, 503, *more})
    own: dict[str, Any] = {"description": text}
    if model is not None:
        own["model"] = model
    return {status: own, **{code: {"model": Error, "description": _TEXTS[code]} for code in codes}}
