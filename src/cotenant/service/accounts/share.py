"""The tree of tenants as it stands, from one view and the last decision: a picture that nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.columns import UNLIMITED
from cotenant.core.errors import unknown
from cotenant.core.tenants import Tree
from cotenant.service.accounts.numbers import HeldGpus, TenantNumbers, held_gpus
from cotenant.service.facade import NotFound
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView
from cotenant.tenancy.standing import Loan, Standing, TenantUse, arithmetic, loans, standings

_NO_TREE = Tree()


@dataclass(frozen=True, slots=True)
class SharePicture:
    """Who holds, borrows and lends what of so many GPUs."""

    at_s: float
    view: BookView
    tree: Tree
    gpus: int
    held: HeldGpus
    rows: Sequence[Standing]
    loans: Sequence[Loan]

    def lenders(self, tenant: str) -> dict[str, int]:
        """From whom a tenant and those below it have borrowed how many; "" where nobody is guaranteed them."""
        return self._sums(tenant, lambda loan: (loan.borrower, loan.lender))

    def borrowers(self, tenant: str) -> dict[str, int]:
        """To whom a tenant and those below it have lent how many."""
        return self._sums(tenant, lambda loan: (loan.lender, loan.borrower))

    def _sums(self, tenant: str, sides: Callable[[Loan], tuple[str, str]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for loan in self.loans:
            mine, other = sides(loan)
            if self._inside(mine, tenant) and not self._inside(other, tenant):
                found[other] = found.get(other, 0) + loan.gpus
        return found

    def _inside(self, name: str, tenant: str) -> bool:
        return bool(name) and tenant in self.tree.path(name)

    def as_dict(self, tenant: str = "") -> dict[str, Any]:
        """For JSON: all, or a tenant and those below it."""
        shown = [row for row in self.rows if not tenant or self._inside(row.name, tenant)]
        if tenant and not shown:
            raise NotFound(str(unknown("tenant", tenant, (row.name for row in self.rows))))
        half_life_s = self.tree.half_life_s
        return {
            "at_s": self.at_s, "policy": self.view.policy, "gpus": self.gpus,
            "idle": max(self.gpus - sum(self.held.used.values()), 0), "declared": bool(self.tree.tenants),
            "half_life_s": half_life_s if isfinite(half_life_s) else None, "tenants": [self._row(row) for row in shown],
        }  # fmt: skip

    def _row(self, row: Standing) -> dict[str, Any]:
        jobs = {
            "running_jobs": self.held.running_jobs.get(row.name, 0),
            "waiting_jobs": self.held.waiting_jobs.get(row.name, 0),
        }
        whom = {"borrowed_from": self.lenders(row.name), "lent_to": self.borrowers(row.name)}
        words = arithmetic(row, self.rows, self.gpus)
        return {**asdict(row), "depth": len(self.tree.path(row.name)) - 1, **jobs, **whom, "arithmetic": words}


class ShareBoard:
    """Makes pictures. `standing` is what the planner knows of tenants since its last decision; `grace_s` is how long
    who gives GPUs back has to save."""

    def __init__(
        self, store: Store, nodes: Callable[[], Sequence[NodeInfo]],
        standing: Callable[[], Mapping[str, TenantNumbers]], grace_s: float,
    ) -> None:  # fmt: skip
        self._store, self._nodes, self._standing, self.grace_s = store, nodes, standing, grace_s

    def picture(self) -> SharePicture:
        """As it is now."""
        view, now_s, known = self._store.view(), self._store.clock(), self._standing()
        tree, held = view.tenants.tree or _NO_TREE, held_gpus(view)
        gpus = sum(node.gpus for node in self._nodes() if node.state == "up" and node.name not in view.drained)
        limit = {name: one.limit for name, one in known.items() if one.limit < UNLIMITED}
        past = {name: one.past_gpus for name, one in known.items()}
        use = TenantUse(held.used, held.waiting, past, limit)
        rows = standings(tree, gpus, use)
        return SharePicture(now_s, view, tree, gpus, held, rows, loans(tree, gpus, use))
