"""Belief about pairs: how fast two kinds of jobs run when they share GPUs, before anybody has seen them.

After Gavel (OSDI'20, section on estimated throughputs): some reference kinds are known in all pairs among
themselves; a new kind is measured beside a few of them, and the rest of its row is completed. Values are
ratios: speed beside the other over speed alone, 0 to 1. What a round observes replaces the belief, and
every belief that hangs on it is completed anew.

`mixture` (default) takes a kind as a mixture of the references, both in what it suffers and in what it does
to others: with weights w_a, w_b the ratio of a beside b is w_a' R w_b, R being the references' own table;
weights come from ridge regression on all that was measured of the kind, around equal shares. `nearest` is
the paper's rule: complete the kind's own row by matrix factorisation, then take the pairs of the reference
with the least cosine distance. On the authors' table (16 references of 26, 20 % profiled) the mean error
of a mixture is about half.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cotenant.beliefs.completion import factorise
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.traits import PAIR_RULES
from cotenant.core.workload import Floats, Ints
from cotenant.workload.profiles.base import Pairs, Profile

_RIDGE = 0.1
_PASSES = 3  # weights of two new kinds depend on each other
_RANK, _PENALTY = 10, 0.01  # of the paper's factorisation
_CHANGED = 0.01  # ratios that differ by less are no news


class PairBelief(Protocol):
    """What a policy may ask about pairs, and how it is told what really happened."""

    def table(self) -> Floats:
        """`[row, other row, type]`: believed speed of a kind packed with another, in the units of `Profile.speed`."""
        ...

    def observe(self, row_a: int, row_b: int, gpu_type: int, value: float) -> bool:
        """The true speed of a beside b was seen; whether that is news."""
        ...


class Oracle:
    """Belief that is the truth."""

    def __init__(self, pairs: Pairs) -> None:
        self._pair = pairs.pair

    def table(self) -> Floats:
        """The true table."""
        return self._pair

    def observe(self, row_a: int, row_b: int, gpu_type: int, value: float) -> bool:
        """No news."""
        return False


class Block:
    """Ratios among kinds of one GPU count: what was measured (NaN: not yet), and the completed rest."""

    def __init__(self, measured: Floats, references: Ints, rule: str = "mixture") -> None:
        self.measured, self.references, self.rule = measured, references, rule
        self.known = measured[np.ix_(references, references)]
        if np.isnan(self.known).any():
            raise ValueError("the references must be known in all pairs among themselves")
        kinds, count = len(measured), len(references)
        self.weights = np.full((kinds, count), 1.0 / max(count, 1))
        self.weights[references] = np.eye(count)
        self.new = np.setdiff1d(np.arange(kinds), references)
        self._stale = True
        self._table = np.zeros_like(measured)

    def table(self) -> Floats:
        """`[kind, other, type]`: measured where it was, else completed."""
        if self._stale:
            if self.rule == "nearest":
                self._inherit()
            else:
                self._mix()
            w = self.weights
            guess = np.clip(np.einsum("ar,rst,bs->abt", w, self.known, w, optimize=True), 0.0, 1.0)
            self._table = np.where(np.isnan(self.measured), guess, self.measured)
            self._stale = False
        return self._table

    def observe(self, a: int, b: int, gpu_type: int, ratio: float) -> bool:
        """Remember a measured ratio; whether it differs from what was believed."""
        news = abs(self.table()[a, b, gpu_type] - ratio) > _CHANGED
        self.measured[a, b, gpu_type] = ratio
        self._stale = self._stale or news
        self._table[a, b, gpu_type] = ratio
        return bool(news)

    def _mix(self) -> None:
        """Ridge regression of every new kind on the references, a few times over, as they depend on each other."""
        seen = ~np.isnan(self.measured)
        even = np.full(len(self.references), 1.0 / max(len(self.references), 1))
        for _ in range(_PASSES):
            suffers = np.einsum("rst,bs->rbt", self.known, self.weights, optimize=True)
            does = np.einsum("ar,rst->sat", self.weights, self.known, optimize=True)
            for kind in self.new.tolist():
                own, other = seen[kind], seen[:, kind].copy()
                other[kind] = False
                x = np.concatenate([suffers[:, own], does[:, other]], axis=1)
                y = np.concatenate([self.measured[kind][own], self.measured[:, kind][other]])
                right = x @ (y - even @ x)
                self.weights[kind] = even + np.linalg.solve(x @ x.T + _RIDGE * np.eye(len(even)), right)

    def _inherit(self) -> None:
        """Every new kind takes the weights of its nearest reference."""
        rows = self.known.reshape(len(self.references), -1)
        for kind in self.new.tolist():
            own = self.measured[kind][self.references].reshape(1, -1)
            if np.isnan(own).all():
                continue  # as all of them on average
            full = np.clip(factorise(np.concatenate([rows, own]), _RANK, _PENALTY)[-1], 0.0, 1.0)
            full = np.where(np.isnan(own[0]), full, own[0])
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(full)
            nearest = int(np.argmax(rows @ full / np.maximum(lengths, 1e-12)))
            self.weights[kind] = np.eye(len(self.references))[nearest]


class PairEstimator:
    """Belief about all kinds of a workload: one `Block` for each GPU count whose kinds can share.

    `alone[row, type]` are the speeds without a partner, taken as known; `blocks` pairs a block with the rows
    of its kinds. Pairs of different GPU counts are never believed possible.
    """

    def __init__(self, alone: Floats, blocks: list[tuple[Ints, Block]]) -> None:
        self._alone, self._blocks = alone, blocks
        self._block_of = np.full(len(alone), -1, np.int64)
        self._at = np.full(len(alone), -1, np.int64)
        for number, (rows, _) in enumerate(blocks):
            self._block_of[rows], self._at[rows] = number, np.arange(len(rows))

    def table(self) -> Floats:
        """`[row, other row, type]`: all beliefs, like `Pairs.pair`."""
        count, types = self._alone.shape
        table = np.zeros((count, count, types))
        for rows, block in self._blocks:
            table[np.ix_(rows, rows)] = block.table() * self._alone[rows, None, :]
        return table

    def observe(self, row_a: int, row_b: int, gpu_type: int, value: float) -> bool:
        """The true speed of a beside b was seen (0: it failed); whether that is news."""
        number = int(self._block_of[row_a])
        if number < 0 or number != self._block_of[row_b] or self._alone[row_a, gpu_type] <= 0:
            return False
        ratio = min(max(value / float(self._alone[row_a, gpu_type]), 0.0), 1.0)
        return self._blocks[number][1].observe(int(self._at[row_a]), int(self._at[row_b]), gpu_type, ratio)


_DEFAULTS: dict[str, dict[str, Value]] = {
    "oracle": {},
    "online": {"profiled": 0.2, "references": 16, "rule": "mixture"},
}


def make_pair_belief(text: str, profile: Profile, seed: int = 0) -> PairBelief | None:
    """`oracle` or `online:profiled=0.2,references=16,rule=mixture`; None where the profile has no pairs.

    `profiled` is the share of (type, reference) cells measured of a kind that is no reference.
    """
    spec = Spec.parse(text)
    if spec.name not in _DEFAULTS:
        raise unknown("estimator of pairs", spec.name, _DEFAULTS)
    values = typed_params(spec, _DEFAULTS[spec.name], "estimator of pairs")
    if profile.pairs is None:
        return None
    if spec.name == "oracle":
        return Oracle(profile.pairs)
    share, count = float(values["profiled"]), int(values["references"])  # type: ignore[arg-type]
    if not 0 <= share <= 1 or count < 1:
        raise InputError(f"estimator of pairs '{text}': profiled is a share from 0 to 1, references at least 1")
    if values["rule"] not in PAIR_RULES:
        raise unknown("rule of estimator of pairs", str(values["rule"]), PAIR_RULES)
    rng = np.random.default_rng([seed, 7919])
    alone = profile.speed[:, :, 0]
    gpus = np.array([size for _, size in profile.kinds], np.int64)
    blocks = []
    for size in np.unique(gpus[profile.pairs.place >= 0]).tolist():
        rows = np.flatnonzero((gpus == size) & (profile.pairs.place >= 0))
        place = profile.pairs.place[rows]
        truth = profile.pairs.table[np.ix_(place, place)]
        ratio = np.divide(truth, alone[rows, None, :], out=np.zeros_like(truth), where=alone[rows, None, :] > 0)
        references = np.sort(rng.permutation(len(rows))[:count])
        blocks.append(
            (rows, Block(_sample(np.clip(ratio, 0, 1), references, share, rng), references, str(values["rule"])))
        )
    return PairEstimator(alone, blocks)


def _sample(truth: Floats, references: Ints, share: float, rng: np.random.Generator) -> Floats:
    """What profiling gives: references beside each other, and of every other kind a share beside references.

    Running two jobs together measures both of them.
    """
    kinds, _, types = truth.shape
    is_reference = np.isin(np.arange(kinds), references)
    drawn: NDArray[np.bool_] = rng.random((kinds, kinds, types)) < share
    seen = drawn & is_reference[None, :, None] & ~is_reference[:, None, None]
    seen = seen | np.swapaxes(seen, 0, 1) | (is_reference[:, None] & is_reference[None, :])[:, :, None]
    return np.where(seen, truth, np.nan)
