"""What the rest of the service asks of the planner, and no more: so that it can be tried with a scripted one.

Whoever asks knows neither the engine nor the policy behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cotenant.core.reasons import Reason
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.service.facade import WhatIfWatch
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.planner.decision import LiveDecision
from cotenant.service.planner.what_if import NOTHING_ELSE, Supposed


class PlannerPart(Protocol):
    """Decides, and answers questions about it. But for `step`: from any thread, without the store's lock."""

    def step(self, now_s: float) -> LiveDecision:
        """Take in what happened since the last step and decide. Called by the scheduler's thread only."""

    def begin_anew(self) -> None:
        """Forget what was decided: it could not be journaled, or the clock was set. The book says what is true."""

    def check(self, policy: str) -> None:
        """Raise an `InputError` unless there is such a policy and it can decide for these nodes."""

    def why(self, job: str, now_s: float) -> Reason | None:
        """Why a job that could start does not, from the decision itself; None where it knows no such job."""

    def line(self, now_s: float) -> list[str]:
        """Jobs in the order in which the policy looks at them; none where it has no order."""

    def standing(self) -> Mapping[str, TenantNumbers]:
        """How tenants stand since the last decision, where there is a tree of them. Never waits."""

    def scene(self, policy: str = "") -> Any:
        """The live state, ready to be played forward under a policy; without a name under the live one."""

    def forecast(
        self, policies: Sequence[str], watch: WhatIfWatch, supposed: Supposed = NOTHING_ELSE
    ) -> Mapping[str, Mapping[str, Foretold | None]]:
        """Under each policy when each job is expected to finish, if nobody else arrives and if `supposed` were so."""
