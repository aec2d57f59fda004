"""What the desks need of the other parts of the service, and no more: so that they can be tried with fakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cotenant.backends.base import Capabilities, LogReader, LogTimes, NodeInfo, Stream
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.core.reasons import Reason
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.service.facade import WhatIfWatch
from cotenant.service.forecasts.foretold import Foretold, Outlook
from cotenant.service.planner.supposed import NOTHING_ELSE, Supposed
from cotenant.service.store.view import BookView


class PlannerAnswers(Protocol):
    """What the planner is asked by people. It may be asked from any thread, without the store's lock."""

    def why(self, job: str, now_s: float) -> Reason | None:
        """Why a job that could start does not, from the decision itself; None where it knows no such job."""

    def forecast(
        self, policies: Sequence[str], watch: WhatIfWatch, supposed: Supposed = NOTHING_ELSE
    ) -> Mapping[str, Mapping[str, Foretold | None]]:
        """Under each policy when each job is expected to finish, if nobody else arrives and if `supposed` were so."""

    def standing(self) -> Mapping[str, TenantNumbers]:
        """How tenants stand since the last decision, where there is a tree of them. Never waits."""

    def check(self, policy: str) -> None:
        """Raise an `InputError` unless there is such a policy and it can decide for these nodes."""


class ToldEnds(Protocol):
    """What is foretold of jobs, kept up to date by somebody else."""

    def of(self, job: str) -> Foretold | None:
        """When a job will end; None where that is not known, or was foretold too long ago."""

    def calibrated(self, policy: str, found: Mapping[str, Foretold | None], view: BookView, at_s: float) -> Outlook:
        """The same with intervals as wide as past errors say that they have to be here."""


class Machines(Protocol):
    """What the backend is asked by people."""

    def nodes(self) -> Sequence[NodeInfo]:
        """All nodes."""

    def capabilities(self) -> Capabilities:
        """What they can do."""

    def open_log(self, key: str, stream: Stream) -> LogReader:
        """The output of an attempt."""

    def open_times(self, key: str) -> LogTimes:
        """When it came."""

    def open_channel(self, key: str, asked: ChannelSpec) -> Channel:
        """A way into an attempt that runs."""

    def wake(self) -> None:
        """Have the scheduler look at once."""


class ReportedProgress(Protocol):
    """The newest word of one job: steps done and in all, what one takes, and whatever else it said."""

    step: int | None
    total: int | None
    step_time_s: float | None
    metrics: dict[str, float]
