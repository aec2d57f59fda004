"""When a winning schedule comes into force: whole, or not yet (ONES, SC'21).

A waiting job whose GPUs are all empty starts at once. Everything else waits until every job that would change has
finished an epoch (the gate) since the schedule in force last changed; then all stop, start, grow and shrink together.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Floats, Ints


class Deployment:
    """The gate: at how many epochs each job was when the schedule was last changed."""

    def __init__(self, gate: float) -> None:
        self.gate = gate
        self._since: dict[int, float] = {}

    def forget(self, row: int) -> None:
        """A job is gone."""
        self._since.pop(row, None)

    def sizes(self, ids: list[int], held: Ints, target: Ints, epochs: Floats, gpus: int) -> tuple[Ints, bool]:
        """Sizes to run with, and whether the whole winner comes into force with them."""
        touched = (held > 0) & (target != held)
        since = np.array([self._since.get(row, 0.0) for row in ids])
        whole = bool((epochs - since >= self.gate)[touched].all()) or int(held.sum()) > gpus
        final = target.copy() if whole else _with_starts(held, target, gpus)
        changes = bool((final != held).any())
        if changes:
            self._since.update(zip(ids, epochs.tolist(), strict=True))
        return final, whole and changes


def _with_starts(held: Ints, target: Ints, gpus: int) -> Ints:
    """What runs, and the waiting jobs of the target that fit onto empty GPUs, by submission."""
    final, free = held.copy(), gpus - int(held.sum())
    for k in np.flatnonzero((held == 0) & (target > 0)).tolist():
        if target[k] <= free:
            final[k] = target[k]
            free -= int(target[k])
    return final
