"""Answers about jobs, nodes, tenants and tokens; their fields are those of the dataclasses of `service.facade`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import BaseModel, create_model

from cotenant.service.facade import AttemptInfo, EventInfo, JobInfo, JobOutcome, NodeStatus, Role, TokenInfo
from cotenant.service.node_windows import NodeWindow

_M = TypeVar("_M", bound=BaseModel)


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


class BackupDone(BaseModel):
    """Where the copy is, in the service's own folder."""

    path: str


class Health(BaseModel):
    """Well enough to answer."""

    status: str
