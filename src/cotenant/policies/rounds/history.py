"""What each combination of jobs has been promised and has received since the last solve.

Rows are small whole numbers that never change meaning; arrays grow with
them. Pairs are kept as a list that is replaced at every solve.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.jit import entry
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.rounds.problem import Targets
from cotenant.policies.rounds.standing import Standing


@entry
def _credit(
    received_s: Matrix, ids: Ints, pools: Ints, most_s: Floats, count: int, given: Matrix, asked_s: float, sums: Floats
) -> int:  # fmt: skip
    """Credit whoever holds something from moment to moment of `given`, with so much at most, and add to them whoever
    got something; how many there are then. Who stands there twice is credited once; `sums` is scratch."""
    at = 0
    while at < len(given):
        now_s = given[at, 0]
        for k in range(count):
            sums[k] = received_s[ids[k], pools[k]] + min(now_s - asked_s, most_s[k])
        for k in range(count):
            received_s[ids[k], pools[k]] = sums[k]
        while at < len(given) and given[at, 0] == now_s:
            if given[at, 1] >= 0:
                ids[count], pools[count] = int(given[at, 1]), int(given[at, 2])
                count += 1
            at += 1
        asked_s = now_s
    return count


class History:
    """Targets, seconds received and deficits, per job and pool; the same for pairs."""

    def __init__(self, pools: int, head_start_s: float) -> None:
        self.pools, self.head_start_s = pools, head_start_s
        self.target, self.received_s, self.deficit_s = (np.zeros((0, pools)) for _ in range(3))
        self.known = np.zeros(0, bool)
        self._ids: Ints = np.zeros(0, np.int64)  # who is known
        self.isolated_s, self.seen_left_s, self.seen_rate = (np.zeros(0) for _ in range(3))
        self.pairs: IntMatrix = np.zeros((0, 2), np.int64)
        self.pair_target, self.pair_received_s, self.pair_deficit_s = (np.zeros((0, pools)) for _ in range(3))
        self.solved_s = -np.inf

    def room_for(self, ids: Ints) -> None:
        """Grow so that every row has a place."""
        need = int(ids.max()) + 1 if len(ids) else 0
        if need <= len(self.known):
            return
        more = max(need, 2 * len(self.known)) - len(self.known)
        for name in ("target", "received_s", "deficit_s"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros((more, self.pools))]))
        for name in ("isolated_s", "seen_left_s", "seen_rate"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more)]))
        self.known = np.concatenate([self.known, np.zeros(more, bool)])

    def receive(self, ids: Ints, pools: Ints, seconds: Floats) -> None:
        """Jobs ran alone in these pools for this long."""
        self.received_s[ids, pools] += seconds

    def catch_up(self, ids: Ints, pools: Ints, most_s: Floats, given: Matrix, asked_s: float) -> tuple[Ints, Ints]:
        """Jobs held these pools since `asked_s`, each counting so much at a time, and others were given some
        (`View.given`); who holds what now."""
        more = int((given[:, 1] >= 0).sum())
        self.room_for(given[:, 1].astype(np.int64))
        ids, pools = (np.concatenate([one, np.zeros(more, np.int64)]) for one in (ids, pools))
        before, most_s = len(ids) - more, np.concatenate([most_s, np.full(more, np.inf)])
        count = _credit(self.received_s, ids, pools, most_s, before, given, asked_s, np.empty(len(ids)))
        return ids[:count], pools[:count]

    def receive_pairs(self, pairs: Ints, pools: Ints, seconds: Floats) -> None:
        """Pairs (by their place in `pairs`) ran in these pools for this long."""
        self.pair_received_s[pairs, pools] += seconds

    def settle(self, now_s: float) -> None:
        """Close the books before a solve: what was promised and not received becomes deficit."""
        if self.solved_s == -np.inf:
            return
        elapsed = now_s - self.solved_s
        known = self._ids
        self.deficit_s[known] += self.target[known] * elapsed - (self.received_s[known] - self.head_start_s)
        self.pair_deficit_s += self.pair_target * elapsed - (self.pair_received_s - self.head_start_s)

    def promise(self, ids: Ints, targets: Targets, now_s: float) -> None:
        """New targets; everybody starts with the same small time received, so that fractions are defined."""
        self.known[self._ids] = False
        self.target[self._ids] = 0.0
        self._ids = ids.copy()
        self.known[ids] = True
        self.target[ids] = targets.x
        self.received_s[ids] = self.head_start_s
        pairs = ids[targets.pairs] if len(targets.pairs) else np.zeros((0, 2), np.int64)
        self.pair_deficit_s = self._carried(pairs)
        self.pairs = pairs
        self.pair_target = targets.pair_x if len(pairs) else np.zeros((0, self.pools))
        self.pair_received_s = np.full((len(pairs), self.pools), self.head_start_s)
        self.solved_s = now_s

    def recall(self, standing: Standing) -> None:
        """As it was when a round began, in an earlier life."""
        ids, jobs = standing.ids, len(standing.ids)
        self.room_for(ids)
        self._ids, self.known[ids], self.solved_s = ids.copy(), True, standing.solved_s
        self.target[ids], self.deficit_s[ids] = standing.target[:jobs], standing.deficit_s[:jobs]
        self.received_s[ids] = standing.received_s[:jobs] + self.head_start_s
        self.pairs = ids[standing.members[jobs:]]
        self.pair_target, self.pair_deficit_s = standing.target[jobs:], standing.deficit_s[jobs:].copy()
        self.pair_received_s = standing.received_s[jobs:] + self.head_start_s

    def _carried(self, pairs: IntMatrix) -> Matrix:
        """Deficits of pairs that existed before; 0 for new ones."""
        deficit = np.zeros((len(pairs), self.pools))
        if not len(pairs) or not len(self.pairs):
            return deficit
        base = int(max(pairs.max(), self.pairs.max())) + 1
        old, new = (np.sort(table, axis=1) @ np.array([base, 1]) for table in (self.pairs, pairs))
        order = np.argsort(old)
        at = np.minimum(np.searchsorted(old[order], new), len(old) - 1)
        same = old[order][at] == new
        deficit[same] = self.pair_deficit_s[order[at[same]]]
        return deficit

    def watch_isolated(self, ids: Ints, left_s: Floats, isolated_rate: Floats) -> Floats:
        """Time that the work since the last solve would have taken on the even share of then; running sum."""
        rate = self.seen_rate[ids]
        done = np.maximum(self.seen_left_s[ids] - left_s, 0.0)
        self.isolated_s[ids] += np.where(rate > 0, done / np.where(rate > 0, rate, 1.0), 0.0)
        self.seen_left_s[ids] = left_s
        self.seen_rate[ids] = isolated_rate
        return np.asarray(self.isolated_s[ids])
