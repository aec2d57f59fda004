"""What the service offers to its doors for pictures of the whole; see `service.facade` for the other desks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cotenant.core.jobspec import JobSpec
from cotenant.service.facade import Caller, WhatIfWatch

if TYPE_CHECKING:
    from cotenant.service.pictures.trial import TrialAsked


class PictureDesk(Protocol):
    """The desk for whoever wants to see the whole. All answers are plain data, of jobs that the caller may see."""

    def overview(self, caller: Caller) -> dict[str, Any]:
        """Jobs by state, GPUs by tenant, decisions and what needs attention."""

    def queue(self, caller: Caller) -> dict[str, Any]:
        """Which place waiting jobs have in the policy's order: {"waiting": {"7": 1, ...}, "count": ...}."""

    def gantt(self, caller: Caller, from_s: float, to_s: float | None = None) -> dict[str, Any]:
        """Who held which GPU when: {"gpus": [[node, index]], "jobs": [...], "bars": [[gpu, job, from, to, kind]]}."""

    def ledger(self, caller: Caller, from_s: float, to_s: float | None = None) -> dict[str, Any]:
        """Every stop that was not the end of the work: its cause, what it cost and who gained by it."""

    def check(self, caller: Caller, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Raises as `JobDesk.submit` would, else the jobs with their defaults filled in. Nothing is submitted."""

    def trial(self, caller: Caller, asked: TrialAsked, watch: WhatIfWatch | None = None) -> dict[str, Any]:
        """When jobs would start and end with other policies, jobs, nodes or tenants, beside how it is now."""
