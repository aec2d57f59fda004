"""What runs teaches: a belief about pairs is told how fast pairs that run really are."""

from __future__ import annotations

from cotenant.beliefs.company import PairSpeeds
from cotenant.beliefs.pair_estimator import PairBelief
from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.engine.observe import running_rows


class PairWatch:
    """Tell a belief about pairs what every pair that runs really does."""

    def __init__(self, belief: PairBelief, truth: PairSpeeds) -> None:
        self.belief, self.truth = belief, truth
        self._seen: set[tuple[int, int, int]] = set()

    def look(self, state: State) -> bool:
        """Whether the belief has changed."""
        news = False
        rows = running_rows(state)
        for guest in rows[state.i[rows, col.HOST] >= 0].tolist():
            a, b = (int(state.i[job, col.SPEED_ROW]) for job in (guest, state.i[guest, col.HOST]))
            node = state.slices[state.i[guest, col.SLICE], col.SLICE_NODE]
            kind = int(state.pool[state.node[node, col.NODE_POOL], col.POOL_TYPE])
            for one, other in ((a, b), (b, a)):
                if (one, other, kind) not in self._seen:
                    self._seen.add((one, other, kind))
                    news |= self.belief.observe(one, other, kind, float(self.truth.pair[one, other, kind]))
        return news
