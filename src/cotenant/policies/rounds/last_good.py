"""What to do when no solver answers in time: the last good targets, completed by an even share for newcomers."""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Ints
from cotenant.policies.rounds.problem import Problem, Targets


class LastGood:
    """Remembers the last answer by row, and counts how often it had to stand in."""

    def __init__(self) -> None:
        self._ids: Ints = np.zeros(0, np.int64)
        self._targets: Targets | None = None
        self.solves = 0
        self.stood_in = 0
        self.notes: dict[str, int] = {}

    def keep(self, ids: Ints, targets: Targets) -> Targets:
        """A fresh answer."""
        self._ids, self._targets = ids.copy(), targets
        self.solves += 1
        if targets.note:
            self.notes[targets.note] = self.notes.get(targets.note, 0) + 1
        return targets

    def stand_in(self, ids: Ints, problem: Problem) -> Targets:
        """Old fractions for jobs that had some, even shares for the others, scaled down to what there is."""
        self.stood_in += 1
        able = problem.rates > 0
        x = problem.isolated * able
        if self._targets is None:
            return Targets(x, note="even split")
        order = np.argsort(self._ids)
        at = np.minimum(np.searchsorted(self._ids[order], ids), len(order) - 1)
        old = order[at]
        same = self._ids[old] == ids
        x[same] = self._targets.x[old[same]] * able[same]
        pairs, pair_x = self._still_here(old, same)
        used = problem.gangs @ x
        if len(pairs):
            used = used + problem.gangs[pairs[:, 0]] @ pair_x
        scale = np.minimum(1.0, problem.capacity / np.where(used > 0, used, 1.0))
        return Targets(x * scale, pairs, pair_x * scale if len(pairs) else pair_x, note="last good answer")

    def _still_here(self, old: Ints, same: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of the old answer whose members are both still here, by their new places."""
        assert self._targets is not None
        place = np.full(len(self._ids), -1, np.int64)
        place[old[same]] = np.flatnonzero(same)
        pairs = place[self._targets.pairs] if len(self._targets.pairs) else np.zeros((0, 2), np.int64)
        here = (pairs >= 0).all(axis=1)
        pair_x = self._targets.pair_x[here] if len(pairs) else self._targets.pair_x
        return pairs[here], pair_x

    def story(self) -> str:
        """One line for people: how many solves, how many stood in, and what the solver said most often."""
        text = f"{self.solves} solves"
        if self.stood_in:
            text += f", {self.stood_in} times the last good answer stood in"
        parted = [note for note in self.notes if "part" in note]
        return text + (f"; {parted[-1]}" if parted else "")
