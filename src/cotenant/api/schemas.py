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
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from cotenant.api.limits import MOST_JOBS
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import AttemptInfo, EventInfo, JobInfo, NodeStatus, Role, TokenInfo

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
        pattern=r"^(-?[0-9]{1,15}|([0-9a-f]{1,16}-)?[0-9]{1,15}-[0-9a-f]{8})$",
        description="Bytes from the oldest kept, -N for the last N, or what X-Offset-Next said.",
    ),
]
Bytes = Annotated[int, Query(ge=1, le=8 << 20, description="At most so many bytes.")]
States = Annotated[list[JobState], Query(max_length=8, description="Only these states; may be repeated.")]


class Stream(StrEnum):
    """Which output of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Flag(StrEnum):
    """Yes or no in a query, in one spelling."""

    TRUE = "true"
    FALSE = "false"


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
        "array": {"type": "string", "examples": ["0-99", "1,3,5"]},
        "after": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    },
    "examples": [{"run": "python train.py", "gpus": 1}],
}


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Submission(_Asked):
    """Jobs as in the YAML file."""

    jobs: list[Annotated[dict[str, Any], WithJsonSchema(JOB_SCHEMA)]] = Field(min_length=1, max_length=MOST_JOBS)


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


class PolicyChange(_Asked):
    """The policy to go on with."""

    policy: str = Field(pattern=r"^[!-~]([ -~]{0,510}[!-~])?$")


class WhatIf(_Asked):
    """Alternatives to try: names, not files, because any user may ask."""

    policies: list[Annotated[str, Field(pattern=_POLICY)]] = Field(min_length=1, max_length=8)


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
    """A listing."""

    jobs: list[Job]


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


class LivePolicy(BaseModel):
    """The policy in force."""

    policy: str


class BackupDone(BaseModel):
    """Where the copy is, in the service's own folder."""

    path: str


class Health(BaseModel):
    """Well enough to answer."""

    status: str


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
