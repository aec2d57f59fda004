"""Bodies of requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from cotenant.api.limits import MOST_JOBS
from cotenant.api.schemas.parameters import LABEL, NAME, POLICY, TEXT, Texts
from cotenant.core.lifecycle import JobState
from cotenant.service.facade import Role, Which

_AMOUNT = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 10**9}
JOB_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["run"],
    "additionalProperties": False,
    "properties": {
        "run": {"type": "string", "minLength": 1},
        "name": {"type": "string", "pattern": LABEL},
        "setup": TEXT,
        "workdir": TEXT,
        "tenant": {"type": "string", "pattern": LABEL},
        "model": TEXT,
        "image": TEXT,
        "env": {"type": "object", "additionalProperties": TEXT},
        "gpus": {"anyOf": [_WHOLE, {"type": "string", "pattern": r"^([A-Za-z0-9][A-Za-z0-9_.-]*:)?[0-9]{1,9}$"}]},
        "cpus": {"type": "number", "minimum": 0},
        "mem": _AMOUNT,
        "gpu_mem": _AMOUNT,
        "gpu_mem_min": _AMOUNT,
        "gpu_mem_speeds": {"anyOf": [TEXT, {"type": "object"}], "examples": ["10:0.6;13:0.9"]},
        "nodes": _WHOLE,
        "priority": {"type": "integer", "minimum": -(10**9), "maximum": 10**9},
        "deadline": _AMOUNT,
        "max_runtime": _AMOUNT,
        "expected": _AMOUNT,
        "retries": _WHOLE,
        "elastic": {"type": "object", "properties": {"min_gpus": _WHOLE, "max_gpus": _WHOLE}},
        "batch": {"type": "object", "properties": {"size": _WHOLE, "min": _WHOLE, "max": _WHOLE}},
        "checkpoint": {"type": "object", "properties": {"dir": TEXT, "interval": _AMOUNT}},
        "preemptible": {"type": "boolean"},
        "exclusive": {"type": "boolean"},
        "movable": {"type": "boolean"},
        "slice": {"type": "string", "examples": ["2g", "2/7"]},
        "weight": {"type": "number", "minimum": 0.01, "maximum": 100},
        "tty": {"type": "boolean"},
        "array": {"type": "string", "examples": ["0-99", "1,3,5", "0-99%5"]},
        "after": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]},
        "notify": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": 10}, {"type": "object"}]},
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
    name: str | None = Field(None, pattern=LABEL)


class _Meant(_Asked):
    """Which jobs: those that pass every filter that is given."""

    jobs: Texts = []
    states: Annotated[list[Annotated[JobState, Field(strict=False)]], Field(max_length=8)] = []
    names: Texts = []
    users: Texts = []
    tenants: Texts = []

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
    nodes: Annotated[list[Annotated[str, Field(pattern=NAME)]], Field(max_length=10_000)] = []
    gpus: int = Field(0, ge=0, le=10**9)
    from_s: float = Field(ge=0, le=1e12, description="Unix seconds.")
    to_s: float = Field(ge=0, le=1e12, description="Unix seconds.")
    tenant: str = Field("", max_length=63)
    user: str = Field("", max_length=63)
    note: str = Field("", max_length=200)


class NewTenant(_Asked):
    """A tenant, with fields as in the cluster file."""

    name: str = Field(pattern=LABEL)
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
    dedicated: Texts = []
    labels: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field([], max_length=100)
    names: Texts = []


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

    policies: list[Annotated[str, Field(pattern=POLICY)]] = Field(min_length=1, max_length=8)
    later: bool = Field(False, description="Where it takes long, answer with 202 and how far it has come.")


class TrialQuestion(_Asked):
    """What is to be otherwise than now. No policies: the live one. `nodes` more like the node `like`, or the first."""

    policies: list[Annotated[str, Field(pattern=POLICY)]] = Field([], max_length=8)
    jobs: list[Annotated[dict[str, Any], WithJsonSchema(JOB_SCHEMA)]] = Field([], max_length=100)
    nodes: int = Field(0, ge=0, le=1000)
    like: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$")
    tenants: dict[Annotated[str, Field(pattern=LABEL)], dict[str, Any]] = Field({}, max_length=100)
    later: bool = Field(False, description="Where it takes long, answer with 202 and how far it has come.")


class SignIn(_Asked):
    """What a browser signs in with: a token, or the code of a link from `cotenant open`."""

    token: str = Field("", max_length=8192)
    code: str = Field("", max_length=200)

    @model_validator(mode="after")
    def _one_of_them(self) -> SignIn:
        if bool(self.token) == bool(self.code):
            raise ValueError("give a token or a code")
        return self


class NewToken(_Asked):
    """Who gets a token, and for what."""

    name: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]{0,62})?$")
    role: Annotated[Role, Field(strict=False)]
    tenant: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$")
    scopes: list[Literal["read", "submit", "manage", "admin", "metrics"]] = Field([], max_length=5)
    expires: float | str | None = Field(None, description="Seconds, or e.g. 12h, 30d; without: never.")


class BackupTo(_Asked):
    """A new file's name in the service's own folder."""

    path: str = Field(pattern=NAME)


class ShutDown(_Asked):
    """What becomes of the jobs: they run on, or save and wait for the next start."""

    jobs: Literal["keep", "stop"]
