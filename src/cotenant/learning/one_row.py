"""Predictions for one row by many models at once, to the last bit those of LightGBM.

LightGBM spends most of a prediction for a single row on getting ready. Here all splits of all trees are decided
together, as in QuickScorer (Lucchese et al., SIGIR 2015): a tree's leaves are bits from left to right, a split that
goes right clears the bits of its left side, and the lowest bit that remains is the leaf that the row comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.learning.boosting import BoostedTrees, Floats

MOST_LEAVES = 62  # of a tree: its leaves are the bits of one whole number
_CODES, _GAP_LEFT, _GAP_KINDS, _GAP_IS_NAN = 1, 2, 12, 8  # bits of LightGBM's decision_type
_KEEP = -1  # all bits


class OneRow:
    """Fitted models without codes that predict a mean, ready to be asked for one row at a time."""

    def __init__(self, models: Sequence[BoostedTrees]) -> None:
        trees = [list(_trees(model.text())) for model in models]
        rounds = max(len(of) for of in trees)
        leaves = max(len(tree["leaf_value"]) for of in trees for tree in of)
        if leaves > MOST_LEAVES:
            raise ValueError(f"a tree has {leaves} leaves, more than {MOST_LEAVES}")
        shape = max(leaves - 1, 1), rounds, len(models)
        self._column = np.zeros(shape, np.int64)
        self._threshold = np.zeros(shape)
        self._gap_left = np.zeros(shape, bool)
        self._right = np.full(shape, _KEEP)  # what is left of the bits where a split goes right
        self._value = np.zeros((rounds, len(models), leaves))
        for model, of in enumerate(trees):
            for at, tree in enumerate(of):
                self._add(tree, at, model)
        self._first = np.arange(rounds * len(models)).reshape(rounds, len(models)) * leaves

    def _add(self, tree: dict[str, list[str]], at: int, model: int) -> None:
        order: list[int] = []  # leaves from left to right
        if tree.get("split_feature"):
            left, right = ([int(text) for text in tree[side]] for side in ("left_child", "right_child"))
            threshold = np.array(tree["threshold"], np.float64)
            how = np.array(tree["decision_type"], np.int64)
            gap_kind = how & _GAP_KINDS
            if (how & _CODES).any() or not np.isin(gap_kind, (0, _GAP_IS_NAN)).all():
                raise ValueError("a tree splits by codes, or takes zero for a gap")
            splits = slice(0, len(how)), at, model
            self._column[splits] = np.array(tree["split_feature"], np.int64)
            self._threshold[splits] = threshold
            # Where training saw no gap in a column, LightGBM takes one for a zero.
            self._gap_left[splits] = np.where(gap_kind == _GAP_IS_NAN, how & _GAP_LEFT > 0, threshold >= 0)
            self._number(0, left, right, order, (at, model))
        values = [float(text) for text in tree["leaf_value"]]
        self._value[at, model, : len(values)] = [values[leaf] for leaf in order] if order else values

    def _number(self, node: int, left: list[int], right: list[int], order: list[int], tree: tuple[int, int]) -> None:
        """List the leaves below a split, and clear those on its left side from what is left on its right."""
        first = len(order)
        for side in (left, right):
            if side[node] < 0:
                order.append(~side[node])
            else:
                self._number(side[node], left, right, order, tree)
            if side is left:
                self._right[(node, *tree)] = ~((1 << len(order)) - (1 << first))

    def predict(self, row: Floats) -> Floats:
        """One number per model."""
        found = row[self._column]
        goes_left = found <= self._threshold
        if np.isnan(row).any():
            goes_left = np.where(np.isnan(found), self._gap_left, goes_left)
        reached: NDArray[np.int64] = np.bitwise_and.reduce(np.where(goes_left, _KEEP, self._right), axis=0)
        leaf = np.frexp((reached & -reached).astype(np.float64))[1] - 1  # which bit is the lowest
        # Tree after tree, as LightGBM adds them.
        return np.asarray(np.add.accumulate(self._value.ravel()[self._first + leaf], axis=0)[-1])


def _trees(text: str) -> Iterator[dict[str, list[str]]]:
    """The trees of a model as LightGBM writes them down, by the names of their columns."""
    for part in text.split("\nend of trees")[0].split("\nTree=")[1:]:
        yield {name: values.split() for name, _, values in (line.partition("=") for line in part.split("\n"))}
