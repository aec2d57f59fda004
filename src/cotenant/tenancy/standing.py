"""How tenants stand: what each is entitled to, holds and may hold, who has borrowed from whom, and the sum in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.tenants import Tree
from cotenant.tenancy.asked import N_USE, S_ENTITLED, S_PAST, WAITING_COLUMNS, Asked, new_claims
from cotenant.tenancy.claims import lay_out
from cotenant.tenancy.tree_tables import TreeTables, tree_tables

NOBODY = ""  # the lender of GPUs that are guaranteed to nobody


@dataclass(frozen=True, slots=True)
class Loan:
    """GPUs of a lender's guarantee (or of nobody's) that a borrower holds until they are asked for."""

    lender: str
    borrower: str
    gpus: int


@dataclass(frozen=True, slots=True)
class TenantStanding:
    """One tenant with all below it, in GPUs."""

    name: str
    parent: str
    depth: int  # 0 at the top
    guaranteed: int
    entitled: float
    ceiling: int | None
    weight: float
    used: int
    past_use: float
    borrowed: int
    lent: int
    waiting: int
    limit: int
    ratio: float  # share over entitlement: whoever has less borrows first

    @property
    def share(self) -> float:
        """What is compared: GPUs held now, or their mean with past use."""
        return self.ratio * self.entitled


def standings(
    tree: Tree, gpus: int, used: Mapping[str, int], waiting: Mapping[str, int],
    limits: Mapping[str, int], past: Mapping[str, float] | None = None,
) -> list[TenantStanding]:  # fmt: skip
    """All tenants of the tree and those beside it that hold or ask, in the order of the file, parents first.

    What is given is by tenant whose jobs they are: GPUs held and waited for, the limit of the last decision, past use.
    `gpus` are those of the cluster.
    """
    said = past or {}
    holds = [name for name in dict.fromkeys((*used, *waiting, *limits, *said)) if name not in tree]
    names = (*(tenant.name for tenant in tree.tenants), *holds)
    tables = tree_tables(tree, names)
    asked = _asked(tables, names, gpus, used, waiting, said)
    into = new_claims(tables.rows, len(names), 1, len(asked.waiting))
    lay_out(tables.rows, asked, into)
    lent = loans(tree, used)
    found = []
    for name in _in_order(tree, holds):
        row, one = tables.row_of[name], tree.of(name)
        below = {other for other in names if name in tree.path(other)}
        use, past_use = int(into.table[row, N_USE]), float(into.shares[row, S_PAST])
        entitled = float(into.shares[row, S_ENTITLED])
        share = use if tree.half_life_s == math.inf else (use + past_use) / 2
        found.append(
            TenantStanding(
                name, one.parent, len(tree.path(name)) - 1, int(tables.rows.guaranteed[row]), entitled, one.ceiling,
                one.weight, use, past_use,
                sum(loan.gpus for loan in lent if loan.borrower in below and loan.lender not in below),
                sum(loan.gpus for loan in lent if loan.lender in below and loan.borrower not in below),
                sum(waiting.get(other, 0) for other in below), sum(limits.get(other, 0) for other in below),
                share / entitled,
            )
        )  # fmt: skip
    return found


def _asked(
    tables: TreeTables, names: Sequence[str], gpus: int, used: Mapping[str, int], waiting: Mapping[str, int],
    past: Mapping[str, float],
) -> Asked:  # fmt: skip
    """The question to the rule, in one pool and gangs of one."""
    count, leaf = len(tables.rows.parent), tables.leaf[:, 0]
    running = np.zeros((count, 2), np.int64)
    running[leaf, 0] = [used.get(name, 0) for name in names]
    before = np.zeros(count)
    before[leaf] = [past.get(name, 0.0) for name in names]
    lines = np.zeros((len(names), WAITING_COLUMNS), np.int64)
    lines[:, :4] = [[row, 1, waiting.get(name, 0), 1] for row, name in zip(leaf, names, strict=True)]
    idle = np.array([max(0, gpus - int(running.sum()))])
    return Asked(idle, running, np.zeros((count, 2)), before, lines, np.zeros((len(names), 2)))


def _in_order(tree: Tree, others: Sequence[str], above: str = "") -> list[str]:
    found = []
    for name in (*(child.name for child in tree.children(above)), *(o for o in others if tree.of(o).parent == above)):
        found.append(name)
        if name in tree:
            found += _in_order(tree, others, name)
    return found


@dataclass(slots=True)
class _Unsettled:
    """What is open at one tenant: GPUs beyond guarantees, and guaranteed ones that are not used, by name."""

    beyond: dict[str, int]
    unspent: dict[str, int]


def loans(tree: Tree, used: Mapping[str, int]) -> list[Loan]:
    """Who has borrowed from whom, by what tenants hold: from the nearest first, else in the order of the file."""
    made: list[Loan] = []
    strangers = [name for name in used if name not in tree]
    top = _settle(tree, used, strangers, "", made)
    made += [Loan(NOBODY, name, gpus) for name, gpus in top.beyond.items() if gpus]
    return made


def _settle(tree: Tree, used: Mapping[str, int], strangers: Sequence[str], name: str, made: list[Loan]) -> _Unsettled:
    """Lend below one tenant (or below the top); what stays open goes further up."""
    here = _Unsettled({}, {})
    for child in tree.children(name):
        one = _settle(tree, used, strangers, child.name, made)
        here.beyond |= one.beyond
        here.unspent |= one.unspent
    here.beyond |= {other: used[other] for other in strangers if tree.of(other).parent == name}
    if name:
        below = sum(tree.guaranteed(child.name) for child in tree.children(name))
        own, held = tree.guaranteed(name) - below, used.get(name, 0)
        here.beyond[name] = max(0, held - own)
        here.unspent[name] = max(0, own - held)
    for borrower in here.beyond:
        for lender in here.unspent:
            gpus = min(here.beyond[borrower], here.unspent[lender])
            if gpus:
                here.beyond[borrower] -= gpus
                here.unspent[lender] -= gpus
                made.append(Loan(lender, borrower, gpus))
    return here


def arithmetic(one: TenantStanding, among: Sequence[TenantStanding], lent: Sequence[Loan] = ()) -> str:
    """The sum by which the next decision gives GPUs to a tenant. `among`: all standings, `lent`: all loans."""
    holds = f"{one.name} holds {one.used} of {one.guaranteed} guaranteed GPUs"
    if one.borrowed:
        holds += f", {one.borrowed} borrowed{_from(lent, one.name)}"
    if one.lent:
        holds += f", {one.lent} lent"
    siblings = [other for other in among if other.parent == one.parent and other.name != one.name]
    part = "its guarantee" if one.entitled == one.guaranteed else f"its weight {one.weight:g}'s part"
    share = f"{one.used}" if one.share == one.used else f"({one.used} now + {one.past_use:.1f} past) / 2"
    sum_ = f"Share over entitlement: {share} / {one.entitled:.1f} ({part}) = {one.ratio:.2f}"
    ahead = [other for other in siblings if other.waiting and other.ratio < one.ratio]
    if not one.waiting:
        turn = "It asks for no more"
    elif one.used < one.guaranteed:
        turn = f"It asks for {one.waiting} more, {min(one.waiting, one.guaranteed - one.used)} of them guaranteed"
    elif ahead:
        first = min(ahead, key=lambda other: other.ratio)
        turn = f"It asks for {one.waiting} more; {first.name} ({first.ratio:.2f}) borrows before it"
    else:
        turn = f"It asks for {one.waiting} more and is the next to borrow"
    return f"{holds}. {sum_}. {turn}; it may hold {one.limit} now."


def _from(lent: Sequence[Loan], borrower: str) -> str:
    parts = [
        f"{loan.gpus} {f'from {loan.lender}' if loan.lender else 'that nobody is guaranteed'}"
        for loan in lent
        if loan.borrower == borrower
    ]
    return f" ({', '.join(parts)})" if parts else ""
