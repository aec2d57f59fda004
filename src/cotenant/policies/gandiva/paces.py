"""How fast jobs are seen to be against alone on their GPUs: what trials and moves are judged by."""

from __future__ import annotations

import numpy as np

from cotenant.core.jit import entry, kernel
from cotenant.core.view import V_RUNNING, View
from cotenant.core.workload import Floats, Ints


def pace(view: View, row: int) -> float:
    """Speed of a job against alone on its GPUs while it has them: pauses between its turns do not count."""
    at = view.at(row)
    alone, share = float(view.alone_speed[at]), float(view.share[at])
    if alone <= 0 or view.floats[V_RUNNING, at] <= 0:
        return 1.0
    return min(float(view.speed[at]) / (alone * (1.0 if view.site.rotates else share)), 1.0)


def slow_rows(view: View, least: float) -> list[int]:
    """Jobs that run and whose pace is lower than 1 by `least` or more."""
    found = np.empty(len(view.rows), np.int64)
    columns = view.speed, view.alone_speed, view.share, view.floats[V_RUNNING]
    count = list_slow(*columns, int(view.site.rotates), least, found)
    rows: list[int] = view.rows[found[:count]].tolist()
    return rows


class Paces:
    """The pace of everybody as seen at the last look, by row."""

    def __init__(self) -> None:
        self._known: Floats = np.zeros(0)

    def look(self, view: View) -> tuple[Floats, list[int]]:
        """The pace of everybody, in step with the rows, and whose is another one than at the last look."""
        rows = view.rows
        more = int(rows.max(initial=0)) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.full(2 * more + 64, np.nan)])
        found, changed = np.empty(len(rows)), np.empty(len(rows), np.int64)
        columns = rows, view.speed, view.alone_speed, view.share, view.floats[V_RUNNING]
        count = note_paces(*columns, int(view.site.rotates), self._known, found, changed)
        return found, changed[:count].tolist()


@kernel
def _pace(speed: float, alone: float, share: float, running: float, rotates: int) -> float:
    """`pace` of numbers."""
    if alone <= 0 or running <= 0:
        return 1.0
    return min(speed / (alone * (1.0 if rotates == 1 else share)), 1.0)


@entry
def note_paces(
    rows: Ints, speed: Floats, alone: Floats, share: Floats, running: Floats, rotates: int, known: Floats,
    found: Floats, changed: Ints,
) -> int:  # fmt: skip
    """Write the pace of everybody, and the rows of those for whom another one is `known`; how many these are."""
    count = 0
    for k in range(len(rows)):
        found[k] = _pace(speed[k], alone[k], share[k], running[k], rotates)
        if known[rows[k]] != found[k]:
            changed[count] = rows[k]
            known[rows[k]] = found[k]
            count += 1
    return count


@entry
def list_slow(
    speed: Floats, alone: Floats, share: Floats, running: Floats, rotates: int, least: float, out: Ints
) -> int:
    """Write the places of jobs that run and whose pace is lower than 1 by `least` or more; how many."""
    count = 0
    for k in range(len(speed)):
        lost = 1.0 - _pace(speed[k], alone[k], share[k], running[k], rotates)
        if running[k] > 0 and speed[k] < alone[k] and lost >= least:
            out[count] = k
            count += 1
    return count
