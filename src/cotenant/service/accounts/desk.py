"""What people ask of accounts. Answers are made of frozen views and of the archive, without the scheduler's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotenant.service.accounts.archive import all_accounts
from cotenant.service.accounts.share import ShareBoard
from cotenant.service.accounts.usage import usage
from cotenant.service.facade import Caller
from cotenant.service.store.store import Store


class Accounts:
    """Who has used what, and how tenants stand."""

    def __init__(self, store: Store, board: ShareBoard) -> None:
        self._store, self._board = store, board

    def share(self, caller: Caller, tenant: str = "") -> dict[str, Any]:
        """How tenants stand, all or one with those below it; who shares a cluster may see how it is shared.

        {"gpus":, "idle":, "half_life_s":, "tenants": [{"name":, "guaranteed":, ..., "arithmetic":}]}.
        """
        return self._board.picture().as_dict(tenant)

    def usage(
        self, caller: Caller, by: Sequence[str] = ("tenant",), from_s: float | None = None, to_s: float | None = None
    ) -> dict[str, Any]:
        """GPU-hours, jobs, waits, failures and lost work between two moments, of tenants that the caller sees.

        `by`: tenant, user, day, model, state. {"by":, "from_s":, "to_s":, "rows": [...], "total": {...}}.
        """
        view, now_s = self._store.view(), self._store.clock()
        since_s, until_s = from_s or 0.0, now_s if to_s is None else to_s
        found = all_accounts(self._store, view, now_s, since_s)
        mine = (account for account in found if caller.sees(account.tenant))
        return {"at_s": now_s, "from_s": from_s, "to_s": until_s, **usage(mine, by, since_s, until_s)}
