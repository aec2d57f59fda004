"""How large a job may become, and when: sizes double one step at a time (ONES, SC'21).

`max_size` starts at 1 and doubles whenever a job has filled it for two epochs. Evolution may give a job up to that and
four times what its user asked; a job that has just changed keeps its size. The largest job, once it holds half of the
cluster longer than is usual, is cut. A stopped job's limit is halved each time it is passed over.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints

BEFORE_SCALING, BEFORE_CHANGE, TIMES_ASKED, FACTOR = 2.0, 1.0, 4, 1.0


def scaled_down(size: int, run_s: float, median_s: float, factor: float = FACTOR) -> int:
    """Limit of a job that is large for long: floor(2 size / (factor run / median + 1)), made even, 2 at least."""
    limit = max(int(np.floor(2 * size / (factor * run_s / median_s + 1) + 1e-9)), 1)
    return limit + limit % 2


class Sizes:
    """Limits of all jobs, by row."""

    def __init__(self) -> None:
        self.largest: dict[int, int] = {}
        self._scaled: dict[int, float] = {}  # epochs at the last change of size
        self._held: dict[int, int] = {}  # size then
        self._ran_s: dict[int, float] = {}
        self._over_s: list[float] = []  # run times of the jobs that are gone

    def forget(self, row: int) -> None:
        """A job is gone."""
        for table in (self.largest, self._scaled, self._held):
            table.pop(row, None)
        ran_s = self._ran_s.pop(row, 0.0)
        if ran_s > 0:
            self._over_s.append(ran_s)

    def limits(self, view: View, which: Ints, held: Ints, epochs: Floats, gpus: int) -> tuple[Ints, Ints]:
        """Per job the limit of evolution and that of filling."""
        asked, ids = view.asked_gpus[which], view.rows[which].tolist()
        cap, train = np.ones(len(which), np.int64), np.ones(len(which), np.int64)
        ready = np.zeros(len(which), bool)
        for k, row in enumerate(ids):
            largest = self.largest.setdefault(row, 1)
            if self._held.get(row, 0) != held[k]:  # the driver gave it another size than was planned
                self._held[row], self._scaled[row] = int(held[k]), float(epochs[k])
            if held[k] > 0:
                ready[k] = epochs[k] - self._scaled.get(row, 0.0) >= BEFORE_SCALING
                if ready[k] and held[k] >= largest:
                    self.largest[row] = largest = min(gpus, 2 * largest)
            if held[k] == 0:
                cap[k] = largest
            else:
                cap[k] = min(largest, TIMES_ASKED * int(asked[k])) if ready[k] else int(held[k])
            train[k] = min(largest, gpus)
        self._cut_largest(view, which, held, ready, cap, gpus)
        return np.minimum(cap, gpus), np.maximum(np.minimum(train, gpus), 1)

    def _cut_largest(self, view: View, which: Ints, held: Ints, ready: np.ndarray, cap: Ints, gpus: int) -> None:
        run_s = view.attained_s[which]
        self._ran_s.update(zip(view.rows[which].tolist(), run_s.tolist(), strict=True))
        if not ready.any():
            return
        at = int(np.argmax(np.where(ready, held, 0)))
        started = np.concatenate([run_s[run_s > 0], self._over_s])
        median_s = float(np.median(started)) if len(started) else 0.0
        if held[at] >= gpus // 2 and median_s > 0 and run_s[at] > median_s:
            cap[at] = scaled_down(int(held[at]), float(run_s[at]), median_s)

    def apply(self, ids: list[int], held: Ints, target: Ints, epochs: Floats, gpus: int) -> Ints:
        """Sizes to deploy: whoever has not finished an epoch since its last change keeps what it has; the others get
        what the winner gives them, as far as that leaves it."""
        locked = np.zeros(len(ids), bool)
        for k, row in enumerate(ids):
            locked[k] = held[k] > 0 and epochs[k] - self._scaled.get(row, 0.0) < BEFORE_CHANGE
        final = np.where(locked, held, target)
        excess = int(final.sum()) - gpus
        for k in np.argsort(-final * ~locked, kind="stable").tolist():  # largest free ones give way first
            if excess <= 0:
                break
            if not locked[k]:
                give = min(excess, int(final[k]) - (1 if held[k] > 0 and final[k] > 0 else 0))
                final[k] -= give
                excess -= give
        for k in np.flatnonzero(~locked)[::-1].tolist():
            if excess <= 0:
                break
            give = min(excess, int(final[k]))
            final[k] -= give
            excess -= give
        for k in np.argsort(-final, kind="stable").tolist():  # GPUs that rigid jobs have taken: nobody is safe
            give = min(max(excess, 0), int(final[k]))
            final[k] -= give
            excess -= give
        self.changed(ids, held, final, epochs)
        self.passed_over(ids, (held > 0) & (final == 0))
        return np.asarray(final, np.int64)

    def changed(self, ids: list[int], held: Ints, final: Ints, epochs: Floats) -> None:
        """Note who changes its size, and at how many epochs."""
        for k in np.flatnonzero(final != held).tolist():
            self._scaled[ids[k]], self._held[ids[k]] = float(epochs[k]), int(final[k])

    def passed_over(self, ids: list[int], who: np.ndarray) -> None:
        """Halve the limits of jobs that a schedule leaves out."""
        for k in np.flatnonzero(who).tolist():
            self.largest[ids[k]] = max(self.largest[ids[k]] // 2, 1)


def at_least(sizes: Ints, fewest: Ints, held: Ints, gpus: int) -> None:
    """Jobs that got fewer GPUs than they take: that many while some are idle, else what they hold, or none."""
    idle = gpus - int(sizes.sum())
    for k in np.flatnonzero((sizes > 0) & (sizes < fewest)).tolist():
        more = int(fewest[k] - sizes[k])
        if more <= idle:
            sizes[k] = fewest[k]
            idle -= more
        else:
            idle += int(sizes[k])
            sizes[k] = held[k] if fewest[k] <= held[k] <= idle else 0
            idle -= int(sizes[k])
