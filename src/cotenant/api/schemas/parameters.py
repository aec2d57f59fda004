"""What stands in paths and queries."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from cotenant.api.logs import CURSOR, OLDER
from cotenant.backends.base import Stream as OneStream
from cotenant.core.lifecycle import JobState

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
POLICY = r"^[A-Za-z][A-Za-z0-9_-]{0,62}(:[A-Za-z0-9_=,.+\[\]-]{0,400})?$"
MOST_SEQ = 2**62
JobId = Annotated[str, Path(pattern=NAME, description="Job id.")]
NodeName = Annotated[str, Path(pattern=NAME, description="Node name.")]
TokenId = Annotated[str, Path(pattern=NAME, description="Token id, not its secret.")]
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
Texts = Annotated[list[_Text], Field(max_length=1000)]
Ids_ = Annotated[list[_Text], Query(alias="id", max_length=1000, description="Ids, arrays 7, ranges 7_[1-4], names.")]
Names = Annotated[list[_Text], Query(alias="name", max_length=100, description="Only jobs of these names.")]
Users = Annotated[list[_Text], Query(alias="user", max_length=100, description="Only jobs of these users.")]
Tenants = Annotated[list[_Text], Query(alias="tenant", max_length=100, description="Only jobs of these tenants.")]
Skip = Annotated[int | None, Query(ge=0, le=10**9, description="Pages in order: those that follow so many.")]
TenantName = Annotated[str, Path(pattern=r"^[^\x00-\x1f\x7f/]{1,200}$", description="Name of a tenant.")]
WindowId = Annotated[str, Path(pattern=NAME, description="Id of a maintenance or a reservation.")]


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
TEXT = {"type": "string"}
