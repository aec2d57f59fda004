"""What is seen of everybody at a decision, in one look: how fast jobs are against alone, who waits, what has changed.

Trials and moves are judged by speeds against alone on the same GPUs.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.jit import entry
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.view import FLOAT_LINES, INT_LINES, V_RUNNING, View
from cotenant.core.workload import Floats, Ints

_LINES = np.array(
    [V_RUNNING, *(FLOAT_LINES[name] for name in ("speed", "alone_speed", "share", "weight", "tier")), INT_LINES["turn"]]
)
_RUNS, _SPEED, _ALONE, _SHARE, _WEIGHT, _TIER, _TURN = range(len(_LINES))
_CHANGED, _SLOW, _WAITS, _SPECIAL = range(4)


def pace(view: View, row: int) -> float:
    """Speed of a job against alone on its GPUs while it has them: pauses between its turns do not count."""
    at = view.at(row)
    alone, share = float(view.alone_speed[at]), float(view.share[at])
    if alone <= 0 or view.floats[V_RUNNING, at] <= 0:
        return 1.0
    return min(float(view.speed[at]) / (alone * (1.0 if view.site.rotates else share)), 1.0)


class Paces:
    """The last look at everybody; whoever's pace is lower than 1 by `least` or more is slow."""

    def __init__(self, least: float) -> None:
        self._least = least
        self._known: Floats = np.zeros(0)  # pace by row, as seen last
        self.pace: Floats = np.zeros(0)  # in step with the rows of the view
        self.changed: list[int] = []  # rows with another pace than before
        self.slow: list[int] = []  # rows
        self.waiting: Ints = np.zeros(0, np.int64)  # places in the view
        self.equal = True  # nobody has a weight or a priority of its own

    def look(self, view: View) -> None:
        """Look at a view."""
        rows = view.rows
        more = int(rows.max(initial=0)) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.full(2 * more + 64, np.nan)])
        self.pace, lists, counts = np.empty(len(rows)), np.empty((3, len(rows)), np.int64), np.zeros(4, np.int64)
        rotates = int(view.site.rotates)
        note_paces(rows, view.floats, _LINES, rotates, self._least, self._known, self.pace, lists, counts)
        changed, slow, waits, special = counts.tolist()
        self.changed, self.slow = lists[_CHANGED, :changed].tolist(), lists[_SLOW, :slow].tolist()
        self.waiting, self.equal = lists[_WAITS, :waits], special == 0


@entry
def note_paces(
    rows: Ints, floats: Matrix, lines: Ints, rotates: int, least: float, known: Floats, found: Floats,
    lists: IntMatrix, counts: Ints,
) -> None:  # fmt: skip
    """Write the pace of everybody, the rows of those for whom another one is `known` and of those who are slow, and the
    places of those who wait; how many these are, and how many have a weight or a priority of their own."""
    for k in range(len(rows)):
        runs, speed, alone = floats[lines[_RUNS], k], floats[lines[_SPEED], k], floats[lines[_ALONE], k]
        pace = 1.0
        if alone > 0 and runs > 0:
            pace = min(speed / (alone * (1.0 if rotates == 1 else floats[lines[_SHARE], k])), 1.0)
        found[k] = pace
        if known[rows[k]] != pace:
            known[rows[k]] = pace
            lists[_CHANGED, counts[_CHANGED]] = rows[k]
            counts[_CHANGED] += 1
        if runs > 0 and speed < alone and 1.0 - pace >= least:
            lists[_SLOW, counts[_SLOW]] = rows[k]
            counts[_SLOW] += 1
        if runs <= 0:
            lists[_WAITS, counts[_WAITS]] = k
            counts[_WAITS] += 1
        if floats[lines[_WEIGHT], k] != 1.0 or floats[lines[_TIER], k] != 0.0:
            counts[_SPECIAL] += 1


def on_other_terms(view: View, shares: Floats, units: Ints) -> list[int]:
    """Rows that run with another share of the time than these, in step (none: 1), or another unit than by row."""
    found = np.empty(len(view.rows), np.int64)
    count = list_others(view.rows, view.floats, view.ints, _LINES, shares, units, found)
    rows: list[int] = found[:count].tolist()
    return rows


@entry
def list_others(
    rows: Ints, floats: Matrix, ints: IntMatrix, lines: Ints, shares: Floats, units: Ints, out: Ints
) -> int:
    """`on_other_terms` of tables; how many these are. Whoever has no unit is one by itself."""
    count = 0
    for k in range(len(rows)):
        unit = units[rows[k]] if rows[k] < len(units) else rows[k]
        share = shares[k] if len(shares) > 0 else 1.0
        differs = floats[lines[_SHARE], k] != share or ints[lines[_TURN], k] != unit + 1
        if differs and floats[lines[_RUNS], k] > 0:
            out[count] = rows[k]
            count += 1
    return count
