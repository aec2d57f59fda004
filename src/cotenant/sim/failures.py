"""Node failures: every node fails and is repaired after exponential times, drawn per node from the seed."""

from __future__ import annotations

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, typed_params
from cotenant.core.state import Matrix


class Outages:
    """A growing, sorted table of (time, node, 1 if it comes back) rows, complete up to `horizon_s`."""

    def __init__(self, text: str | None, nodes: int, seed: int, start_s: float) -> None:
        self.table: Matrix = np.zeros((0, 3))
        self.horizon_s = np.inf
        self.checkpoint_s = np.inf
        if text is None:
            return
        self._mtbf_s, self._mttr_s, self.checkpoint_s = _parse(text)
        self._generators = [np.random.default_rng([seed, 7919, node]) for node in range(nodes)]
        self._clock_s = np.full(nodes, start_s)
        self._down = np.zeros(nodes, bool)
        self.horizon_s = start_s
        self.extend()

    def extend(self) -> None:
        """Draw further failures, a good stretch beyond what there is."""
        target = self.horizon_s + 20 * (self._mtbf_s + self._mttr_s) / max(len(self._clock_s) ** 0.5, 1)
        rows = []
        for node, generator in enumerate(self._generators):
            while self._clock_s[node] <= target:
                mean = self._mttr_s if self._down[node] else self._mtbf_s
                self._clock_s[node] += generator.exponential(mean)
                rows.append((self._clock_s[node], node, float(self._down[node])))
                self._down[node] = not self._down[node]
        table = np.concatenate([self.table, np.array(rows).reshape(-1, 3)])
        self.table = table[np.lexsort((table[:, 1], table[:, 0]))]
        self.horizon_s = target


def check_often(text: str, longest_s: float) -> None:
    """Refuse failures so frequent that hardly any try of a job reaches its next checkpoint: it would never end."""
    mtbf_s, _, checkpoint_s = _parse(text)
    needs_s = min(longest_s, checkpoint_s)
    if needs_s > _MOST_PER_TRY * mtbf_s:
        raise InputError(
            f"--fail-nodes '{text}': nodes fail every {mtbf_s:g} s, and a job runs {needs_s:g} s to its next checkpoint"
            " or end: it would start thousands of times; raise mtbf or lower checkpoint"
        )


_MOST_PER_TRY = 8.0  # failures expected in one try: one in three thousand succeeds


def _parse(text: str) -> tuple[float, float, float]:
    """Seconds between failures, of a repair, and between checkpoints."""
    params = typed_params(
        Spec.parse(f"fail-nodes:{text}"), {"mtbf": 0.0, "mttr": 3600.0, "checkpoint": 1800.0}, "option"
    )
    mtbf_s, mttr_s, checkpoint_s = (float(str(params[key])) for key in ("mtbf", "mttr", "checkpoint"))
    if not (mtbf_s > 0 and mttr_s > 0 and checkpoint_s > 0):
        raise InputError(f"--fail-nodes '{text}': write mtbf=SECONDS,mttr=SECONDS, both above 0")
    return mtbf_s, mttr_s, checkpoint_s
