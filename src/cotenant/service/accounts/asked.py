"""What the service offers to its doors about accounts; see `service.facade` for the other desks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cotenant.service.facade import Caller


class AccountDesk(Protocol):
    """The desk for who has used what."""

    def usage(
        self, caller: Caller, by: Sequence[str] = ("tenant",), from_s: float | None = None, to_s: float | None = None
    ) -> dict[str, Any]:
        """GPU-hours, jobs, waits, failures and lost work between two moments, of tenants that the caller sees.

        `by`: tenant, user, day, model, state. {"by":, "from_s":, "to_s":, "rows": [...], "total": {...}}.
        """

    def share(self, caller: Caller, tenant: str = "") -> dict[str, Any]:
        """How tenants stand, all or one with those below it; who shares a cluster may see how it is shared.

        {"gpus":, "idle":, "half_life_s":, "tenants": [{"name":, "guaranteed":, ..., "arithmetic":}]}.
        """
