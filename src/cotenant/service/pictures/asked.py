"""What the service offers to its doors for pictures of the whole; see `service.facade` for the other desks."""

from __future__ import annotations

from typing import Any, Protocol

from cotenant.service.facade import Caller


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
