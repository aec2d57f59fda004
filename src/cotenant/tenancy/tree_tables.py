"""The tree of tenants as arrays that compiled code can take.

Rows are the root (row 0: the cluster), the tenants, and *leaves*: rows to which jobs count. A tenant without children is
its own leaf. One with children, or with GPUs guaranteed by type, has its jobs in leaves of their own below it: one per
guaranteed type for the jobs that name it, and one for all others. Rows stand level by level, siblings side by side in
the order of the file, so that parents come before children and the children of row n are `first[n]` to `first[n + 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.tenants import DEFAULT, Tree

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
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
    host: Floats  # rows x (most cores, most GiB)


@dataclass(frozen=True, slots=True)
class TreeTables:
    """Rows, and how to find them."""

    rows: Rows
    names: tuple[str, ...]  # of rows; leaves below a tenant have its name
    row_of: dict[str, int]  # tenant -> its row (not its leaf)
    leaf: Ints  # tenants (in the order of the names given) x (jobs that name no type, type 0, type 1, ...) -> row


def tree_tables(tree: Tree, names: Sequence[str], types: Sequence[str] = ()) -> TreeTables:
    """Rows for the tree and for the tenants that have jobs, in the order in which tables number them.

    `types` are the GPU types in the order of the tables. Names that nobody declared stand below `default`, or at the
    top. Tenants that are declared but not in `names` have rows too, with `tenant` -1.
    """
    raise NotImplementedError
