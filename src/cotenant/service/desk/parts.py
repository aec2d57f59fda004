"""What the desks need of the other parts of the service, and no more: so that they can be tried with fakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cotenant.backends.base import NodeInfo
from cotenant.core.reasons import Reason


class PlannerAnswers(Protocol):
    """What the planner is asked by people. It may be asked from any thread, without the store's lock."""

    def why(self, job: str, now_s: float) -> Reason | None:
        """Why a job that could start does not, from the decision itself; None where it knows no such job."""

    def forecast(self, policies: Sequence[str]) -> Mapping[str, Mapping[str, float | None]]:
        """Under each policy when each job is expected to finish, Unix seconds, if nobody else arrives."""

    def check(self, policy: str) -> None:
        """Raise an `InputError` unless there is such a policy and it can decide for these nodes."""


class Machines(Protocol):
    """What the backend is asked by people."""

    def nodes(self) -> Sequence[NodeInfo]:
        """All nodes."""

    def log_paths(self, key: str) -> Mapping[str, Sequence[str]]:
        """Where the output of a live attempt is, by stream, the newest file last."""

    def wake(self) -> None:
        """Have the scheduler look at once."""


class Progress(Protocol):
    """The newest word of one job."""

    @property
    def step(self) -> int | None:
        """Steps done."""

    @property
    def total(self) -> int | None:
        """Steps in all."""

    @property
    def step_time_s(self) -> float | None:
        """What a step takes."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Whatever else it said."""


class Reports(Protocol):
    """What jobs say of themselves."""

    def of(self, job: str) -> Progress | None:
        """The newest report of a job."""


class Logs(Protocol):
    """Output of ended attempts."""

    def find(self, key: str, stream: str) -> Path | None:
        """The newest part of a stream, if it was kept."""
