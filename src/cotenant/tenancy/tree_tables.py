"""The tree of tenants as arrays that compiled code can take.

Rows are the root (row 0: the cluster), the tenants, and *leaves*: rows to which jobs count. A tenant without children
is its own leaf. One with children, or with GPUs guaranteed by type, has its jobs in leaves of their own below it: one
per guaranteed type for the jobs that name it, and one for all others. Rows stand level by level, siblings side by side
in the order of the file: parents come before children, and the children of row n are `first[n]` to `first[n + 1]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.tenants import Tenant, Tree

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Matrix = NDArray[np.float64]
NO_LIMIT = 2**40


class Rows(NamedTuple):
    """What the tree says, per row. Numbers of a row are those of all rows below it together."""

    parent: Ints  # -1 for the root
    first: Ints  # where its children begin; one more at the end
    depth: Ints
    tenant: Ints  # whose jobs count to it, an index into the names; -1 for rows that are not leaves
    guaranteed: Ints
    most: Ints  # most GPUs: the ceiling, or guarantee and most that it borrows
    unlent: Ints  # GPUs of the guarantee that others may not use meanwhile
    weight: Floats
    declared: Ints  # 0: its weight counts against its siblings' only while it has jobs or past use
    reclaims: Ints
    host: Matrix  # rows x (most cores, most GiB)


@dataclass(frozen=True, slots=True)
class TreeTables:
    """Rows, and how to find them."""

    rows: Rows
    names: tuple[str, ...]  # of rows; leaves below a tenant have its name
    row_of: dict[str, int]  # tenant -> its row (not its leaf)
    leaf: Ints  # tenants (in the order of the names given) x (jobs that name no type, type 0, type 1, ...) -> row


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    parent: int
    depth: int
    jobs_of: str | None = None  # the tenant whose jobs count to it, where it is a leaf
    of_type: str = ""  # only jobs that name this type
    guaranteed: int = 0
    said: Tenant | None = None  # what people say of it, for the row of a tenant


def tree_tables(tree: Tree, names: Sequence[str], types: Sequence[str] = ()) -> TreeTables:
    """Rows for the tree and for the tenants that have jobs, in the order in which tables number them.

    `types` are the GPU types in the order of the tables. Names that nobody declared stand below `default`, or at the
    top. Tenants that are declared but not in `names` have rows too, with `tenant` -1.
    """
    strangers: dict[str, list[Tenant]] = {}
    for name in dict.fromkeys(names):
        if name not in tree:
            strangers.setdefault(tree.of(name).parent, []).append(tree.of(name))
    made = [_Row("", -1, 0)]
    first: list[int] = []
    for at, row in enumerate(made):  # grows while it is walked
        first.append(len(made))
        if row.jobs_of is None:
            made.extend(_below(tree, row, at, strangers, set(names), types))
    number = {name: at for at, name in enumerate(names)}
    leaf = np.full((len(names), 1 + len(types)), -1, np.int64)
    for at, row in enumerate(made):
        if row.jobs_of in number:
            tenant = number[row.jobs_of]
            if row.of_type:
                leaf[tenant, 1 + types.index(row.of_type)] = at
            else:
                leaf[tenant] = np.where(leaf[tenant] < 0, at, leaf[tenant])
    rows = _as_arrays(tree, made, [*first, len(made)], number)
    row_of = {row.name: at for at, row in enumerate(made) if row.said is not None}
    return TreeTables(rows, tuple(row.name for row in made), row_of, leaf)


def _below(
    tree: Tree, row: _Row, at: int, strangers: dict[str, list[Tenant]], at_work: set[str], types: Sequence[str]
) -> Iterator[_Row]:
    """The rows right below one that is no leaf: leaves of its own jobs, then its children."""
    deep = row.depth + 1
    if row.said is not None and row.name in at_work:
        typed = dict(row.said.guaranteed_by_type)
        for kind in types:
            if kind in typed:
                yield _Row(row.name, at, deep, row.name, kind, typed[kind])
        yield _Row(row.name, at, deep, row.name)
    for child in (*tree.children(row.name), *strangers.get(row.name, ())):
        known = child.name in tree
        inner = known and bool(tree.children(child.name) or strangers.get(child.name) or child.guaranteed_by_type)
        has = tree.guaranteed(child.name) if known else 0
        yield _Row(child.name, at, deep, None if inner else child.name, "", has, child)


def _as_arrays(tree: Tree, made: list[_Row], first: list[int], number: dict[str, int]) -> Rows:
    def ints(values: Iterable[int]) -> Ints:
        return np.array([*values], np.int64)

    plain = Tenant("-")
    said = [row.said or plain for row in made]
    has = ints(row.guaranteed for row in made)
    return Rows(
        parent=ints(row.parent for row in made),
        first=ints(first),
        depth=ints(row.depth for row in made),
        tenant=ints(-1 if row.jobs_of is None else number.get(row.jobs_of, -1) for row in made),
        guaranteed=has,
        most=ints(
            min(
                NO_LIMIT if tenant.ceiling is None else tenant.ceiling,
                NO_LIMIT if tenant.borrow is None else row.guaranteed + tenant.borrow,
            )
            for tenant, row in zip(said, made, strict=True)
        ),
        unlent=ints(
            0 if tenant.lend is None else max(0, row.guaranteed - tenant.lend)
            for tenant, row in zip(said, made, strict=True)
        ),
        weight=np.array([tenant.weight for tenant in said]),
        declared=ints(int(row.said is not None and row.name in tree) for row in made),
        reclaims=ints(int(tree.of(row.name).reclaims) for row in made),
        host=np.array([[tenant.cpus, tenant.mem_gib] for tenant in said]),
    )
