"""Random trees of tenants with what they hold and ask, and slow sums to check the filling by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from cotenant.core.tenants import Tenant, Tree
from cotenant.tenancy.asked import W_COUNT, W_GPUS, W_POOLS, W_ROW, Asked, Claims, new_claims
from cotenant.tenancy.filling import fill_limits
from cotenant.tenancy.tree_tables import TreeTables, tree_tables

SIZES = (1, 1, 1, 2, 4, 8)


@dataclass(frozen=True)
class Case:
    """A tree, who has jobs in it, and what they hold and ask."""

    tree: Tree
    names: tuple[str, ...]
    tables: TreeTables
    asked: Asked

    def filled(self, asked: Asked | None = None) -> Claims:
        asked = asked or self.asked
        into = new_claims(self.tables.rows, len(self.names), len(asked.idle), len(asked.waiting))
        fill_limits(self.tables.rows, asked, into)
        return into

    @property
    def leaves(self) -> list[int]:
        return [int(row) for row in np.flatnonzero(self.tables.rows.tenant >= 0)]


def random_tree(rng: np.random.Generator, gpus: int, guarantees: bool, bounds: bool) -> Tree:
    """Up to eight tenants, guaranteed no more than there is."""
    names = [f"t{at}" for at in range(rng.integers(1, 9))]
    parents = [names[rng.integers(at)] if at and rng.random() < 0.6 else "" for at in range(len(names))]
    left = gpus if guarantees else 0
    has: dict[str, int] = dict.fromkeys(names, 0)
    for name, parent in reversed([*zip(names, parents, strict=True)]):  # children before parents
        more = int(rng.integers(0, left + 1)) if rng.random() < 0.6 else 0
        has[name] += more
        left -= more
        if parent:
            has[parent] += has[name]
    most = lambda: int(rng.integers(0, gpus)) if bounds and rng.random() < 0.4 else None  # noqa: E731
    return Tree(
        tuple(
            Tenant(
                name, parent, has[name], weight=float(rng.choice([1, 1, 2, 5])), borrow=most(), lend=most(),
                ceiling=max(most() or gpus, has[name]) if bounds else None,
            )
            for name, parent in zip(names, parents, strict=True)
        )
    )  # fmt: skip


def random_case(seed: int, pools: int = 2, guarantees: bool = True, bounds: bool = True) -> Case:
    """A tree with jobs of its tenants and of a stranger."""
    rng = np.random.default_rng(seed)
    idle = rng.integers(1, 17, rng.integers(1, pools + 1))
    tree = random_tree(rng, int(idle.sum()), guarantees, bounds)
    names = (*(tenant.name for tenant in tree.tenants), "stranger")
    tables = tree_tables(tree, names)
    count = len(tables.rows.parent)
    leaves = np.flatnonzero(tables.rows.tenant >= 0)
    running = np.zeros((count, len(idle) + 1), np.int64)
    for _ in range(rng.integers(0, 12)):
        pool = rng.integers(len(idle))
        gpus = min(rng.integers(1, 9), idle[pool])
        running[rng.choice(leaves), pool] += gpus
        idle[pool] -= gpus
    lines = [
        [rng.choice(leaves), rng.choice(SIZES), rng.integers(1, 7), rng.integers(1, 2 ** len(idle)), 0]
        for _ in range(rng.integers(0, 12))
    ]
    waiting = np.array(lines, np.int64).reshape(-1, 5)
    asked = Asked(idle, running, np.zeros((count, 2)), np.zeros(count), waiting, np.zeros((len(lines), 2)))
    return Case(tree, names, tables, asked)


def cases(pools: int = 2, guarantees: bool = True, bounds: bool = True) -> st.SearchStrategy[Case]:
    """Cases from seeds: drawing each number by itself takes ten times as long."""
    return st.integers(0, 2**32).map(lambda seed: random_case(seed, pools, guarantees, bounds))


def in_use(case: Case, claims: Claims) -> list[int]:
    """GPUs kept and claimed by each row and those below it, summed anew."""
    rows = case.tables.rows
    use = claims.keep.sum(axis=1)
    for line, said in zip(case.asked.waiting, claims.items, strict=True):
        use[line[W_ROW]] += line[W_GPUS] * (said[0] + said[1])
    for row in range(len(use) - 1, 0, -1):
        use[rows.parent[row]] += use[row]
    return [int(gpus) for gpus in use]


def runs(case: Case) -> np.ndarray:
    """GPUs held by each row and those below it."""
    rows, found = case.tables.rows, case.asked.running.sum(axis=1)
    for row in range(len(found) - 1, 0, -1):
        found[rows.parent[row]] += found[row]
    return found


def held(case: Case, use: list[int]) -> list[int]:
    """GPUs that each row keeps from strangers, summed anew."""
    rows = case.tables.rows
    kept, below = [0] * len(use), [0] * len(use)
    for row in range(len(use) - 1, -1, -1):
        kept[row] = max(below[row], int(rows.unlent[row]) - use[row], 0)
        if row:
            below[rows.parent[row]] += kept[row]
    return below


def after(case: Case, claims: Claims) -> Asked:
    """The next moment: claims run, what was taken back waits again in gangs of one, in any pool."""
    asked = case.asked
    running, waiting = claims.keep.copy(), asked.waiting.copy()
    idle = asked.idle + (asked.running - claims.keep)[:, :-1].sum(axis=0)
    for at, line in enumerate(asked.waiting):
        gangs = int(claims.items[at, 0] + claims.items[at, 1])
        waiting[at, W_COUNT] -= gangs
        for _ in range(gangs):
            pool = next(p for p in range(len(idle)) if line[W_POOLS] >> p & 1 and idle[p] >= line[W_GPUS])
            idle[pool] -= line[W_GPUS]
            running[line[W_ROW], pool] += line[W_GPUS]
    back = [
        [row, 1, int(gpus), 2 ** len(idle) - 1, 0]
        for row, gpus in enumerate((asked.running - claims.keep).sum(axis=1))
        if gpus
    ]
    waiting = np.concatenate([waiting, np.array(back, np.int64).reshape(-1, 5)])
    return asked._replace(idle=idle, running=running, waiting=waiting, waiting_host=np.zeros((len(waiting), 2)))
