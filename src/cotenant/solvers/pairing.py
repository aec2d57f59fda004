"""Maximum-weight matching of things of a few kinds: pairs are counted by kind, not thing by thing.

Things of one kind are interchangeable, so a matching is a table x[a, b]: how many a are paired with a b. The linear
program over that table (Edmonds' without odd sets) has as many rows as kinds, however many things there are. Its
answer, rounded down and less a few of each, is kept; what is left over, a few of each kind, is matched exactly by the
blossom algorithm (rustworkx; integer weights). Small instances are matched exactly at once; for
large ones the total is exact in almost all cases and never far from it. A pair of weight 0 or
less is never made.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from cotenant.solvers.answer import Floats, Ints
from cotenant.solvers.small_lp import pack

EXACT_UP_TO = 48  # things
_HELD_BACK = 3  # pairs of each two kinds that are matched again with the remainder
_SCALE = 1e9  # of weights, which the blossom algorithm wants as integers


def pair_kinds(weight: Floats, counts: Ints, *, exact_up_to: int = EXACT_UP_TO) -> Ints:
    """How many of each kind to pair with each other kind (upper triangle) for the largest total weight.

    `weight[a, b]` (symmetric) is what a pair of kinds a and b is worth, `counts[a]` how many there are.
    """
    kinds = len(counts)
    pairs = np.zeros((kinds, kinds), np.int64)
    left = np.asarray(counts, np.int64).copy()
    if int(left.sum()) > exact_up_to:
        fixed = _bulk(np.asarray(weight, np.float64), left)
        pairs += fixed
        left -= fixed.sum(axis=0) + fixed.sum(axis=1)
    return pairs + _exact(np.asarray(weight, np.float64), left)


def _bulk(weight: Floats, counts: Ints) -> Ints:
    """The part of the fractional optimum that no rounding can take back: rounded down, less a few."""
    a, b = np.triu_indices(len(counts))
    useful = (weight[a, b] > 0) & (counts[a] > 0) & (counts[b] > 0)
    a, b = a[useful], b[useful]
    table = np.zeros((len(counts), len(counts)), np.int64)
    if not len(a):
        return table
    matrix = np.zeros((len(counts), len(a)))
    columns = np.arange(len(a))
    np.add.at(matrix, (a, columns), 1.0)
    np.add.at(matrix, (b, columns), 1.0)
    x, _ = pack(weight[a, b], matrix, counts.astype(np.float64))
    table[a, b] = np.maximum(np.floor(x + 1e-9).astype(np.int64) - _HELD_BACK, 0)
    return table


@lru_cache(maxsize=256)
def _everybody(things: int) -> tuple[Ints, Ints, Any]:
    """All pairs of so many things, and a graph of them; the edges are numbered in this order."""
    import rustworkx

    one, two = np.triu_indices(things, 1)
    graph: Any = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(things))
    graph.add_edges_from(list(zip(one.tolist(), two.tolist(), range(len(one)), strict=True)))
    return one, two, graph


def _graph_of(things: int, one: Ints, two: Ints, kept: Ints) -> Any:
    """A graph with these edges only, numbered as above."""
    import rustworkx

    graph: Any = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(things))
    graph.add_edges_from(list(zip(one[kept].tolist(), two[kept].tolist(), kept.tolist(), strict=True)))
    return graph


def _exact(weight: Floats, counts: Ints) -> Ints:
    """Blossom over single things; of a kind, no more than could find partners."""
    import rustworkx

    useful = (weight > 0) & (counts > 0)[None, :] & (counts > 0)[:, None]
    partners = np.where(useful, counts[None, :], 0).sum(axis=1)
    counts = np.minimum(counts, partners)
    kinds = np.repeat(np.arange(len(counts)), counts)
    pairs = np.zeros((len(counts), len(counts)), np.int64)
    one, two, graph = _everybody(len(kinds))
    worth = np.rint(weight * _SCALE).astype(np.int64)[kinds[one], kinds[two]]
    kept = np.flatnonzero(worth > 0)
    if not len(kept):
        return pairs
    if len(kept) < len(one):
        graph = _graph_of(len(kinds), one, two, kept)
    of = kinds.tolist()
    found = rustworkx.max_weight_matching(graph, max_cardinality=False, weight_fn=worth.tolist().__getitem__)
    for i, j in found:
        a, b = of[i], of[j]
        pairs[min(a, b), max(a, b)] += 1
    return pairs
