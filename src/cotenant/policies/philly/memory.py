"""What lasts from decision to decision: since when who tries to get GPUs, and who holds which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.philly.tables import COUNTS, HOLD_GPUS, N_HOLDS, Lasting


class Tries:
    """By rows; tables grow with them."""

    def __init__(self) -> None:
        self._began_s: Floats = np.full(16, np.nan)
        self._passed: Ints = np.full(16, -1)
        self._at: Ints = np.full(16, -1)
        self._holds: Ints = np.zeros((0, 3), np.int64)
        self.counts: Ints = np.zeros(COUNTS, np.int64)

    def tables(self, view: View) -> Lasting:
        """For a decision on these jobs."""
        rows, gpus = int(view.rows.max(initial=0)) + 1, view.cluster_gpus + int(self.counts[N_HOLDS])
        if rows > len(self._at):
            more = max(rows - len(self._at), len(self._at))
            self._began_s = np.concatenate([self._began_s, np.full(more, np.nan)])
            self._passed = np.concatenate([self._passed, np.full(more, -1)])
            self._at = np.concatenate([self._at, np.full(more, -1)])
        if gpus > len(self._holds):
            self._holds = np.concatenate([self._holds, np.zeros((gpus - len(self._holds), 3), np.int64)])
        return Lasting(self._began_s, self._passed, self._at, self._holds, self.counts)

    @property
    def held_gpus(self) -> int:
        """GPUs held idle now."""
        return int(self._holds[: self.counts[N_HOLDS], HOLD_GPUS].sum())

    def holds(self) -> Ints:
        """(row, node, GPUs) of what is held; a copy."""
        return self._holds[: self.counts[N_HOLDS]].copy()

    def began_s(self, rows: Ints) -> Floats:
        """When each of these jobs began to try; NaN where it has not."""
        return self._began_s[rows]

    def forget_holds(self) -> None:
        """Nobody waits."""
        self.counts[N_HOLDS] = 0

    def remember(self) -> dict[tuple[int, ...], Any]:
        """As plain data, by rows."""
        holds: dict[int, list[list[int]]] = {}
        for row, node, gpus in self._holds[: self.counts[N_HOLDS]].tolist():
            holds.setdefault(row, []).append([node, gpus])
        tries = np.flatnonzero(~np.isnan(self._began_s)).tolist()
        return {(row,): {"began_s": float(self._began_s[row]), "holds": holds.get(row, [])} for row in tries}

    def recall(self, kept: Mapping[tuple[int, ...], Any]) -> None:
        """The inverse; what is no longer free is dropped at the next decision."""
        rows = max((row for (row,) in kept), default=0) + 1
        self._began_s = np.full(rows, np.nan)
        self._passed, self._at = np.full(rows, -1), np.full(rows, -1)
        holds = []
        for (row,), told in kept.items():
            self._began_s[row] = told["began_s"]
            holds += [(row, node, gpus) for node, gpus in told["holds"]]
        self._holds = np.array(holds, np.int64).reshape(-1, 3)
        self.counts[N_HOLDS] = len(holds)
