"""The tree of tenants as it stands, from one view and the last decision: a picture that nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import unknown
from cotenant.core.tenants import Tree
from cotenant.service.accounts.numbers import HeldGpus, TenantNumbers, held_gpus
from cotenant.service.facade import NotFound
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView
from cotenant.tenancy.standing import NOBODY, Loan, TenantStanding, arithmetic, loans, standings

_NO_TREE = Tree()
_LITTLE = 0.05  # GPUs in the past for which a tenant is shown that nobody declared and that has no jobs


@dataclass(frozen=True, slots=True)
class SharePicture:
    """Who holds, borrows and lends what of so many GPUs. `limits`: the most that some may hold by the last decision."""

    at_s: float
    view: BookView
    tree: Tree
    gpus: int
    held: HeldGpus
    limits: Mapping[str, int]
    rows: Sequence[TenantStanding]
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
        return name != NOBODY and tenant in self.tree.path(name)

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

    def _row(self, row: TenantStanding) -> dict[str, Any]:
        held, name = self.held, row.name
        jobs = {"running_jobs": held.running_jobs.get(name, 0), "waiting_jobs": held.waiting_jobs.get(name, 0)}
        whom = {"borrowed_from": self.lenders(name), "lent_to": self.borrowers(name)}
        limit = row.limit if any(self._inside(one, name) for one in self.limits) else None
        words = arithmetic(row, self.rows, self.loans)
        return {**asdict(row), "limit": limit, **jobs, **whom, "arithmetic": words}


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
        known = {name: one for name, one in known.items() if name in tree or held.of(name) or one.past_gpus > _LITTLE}
        limits = {name: min(one.limit, gpus) for name, one in known.items()}
        past = {name: one.past_gpus for name, one in known.items()}
        anybody = tree.tenants or held.used or held.waiting or known
        rows = standings(tree, gpus, held.used, held.waiting, limits, past) if anybody else []
        return SharePicture(now_s, view, tree, gpus, held, limits, rows, loans(tree, held.used))
