"""Numbers for kinds of jobs that stay when kinds are laid out anew, as long as somebody of a kind is there.

A policy that draws noise once per kind keeps it by these numbers: what it believes of a job must not change because
others came or went.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cotenant.core.view import View
from cotenant.core.workload import Ints


class SteadyKinds:
    """Kind -> number. At first the kinds themselves; after `renumber` known by the jobs that were seen of them."""

    def __init__(self) -> None:
        self._numbers: Ints | None = None
        self._of_row: dict[int, int] = {}
        self._given = 0

    def look(self, view: View) -> Ints:
        """The number of each kind; remembers which jobs are of which."""
        if self._numbers is None:
            self._numbers = np.full(len(view.site.speed), -1, np.int64)
            for row, kind in zip(view.rows.tolist(), view.kind.tolist(), strict=True):
                self._numbers[kind] = self._of_row.get(row, self._numbers[kind])
            fresh = np.flatnonzero(self._numbers < 0)
            self._numbers[fresh] = self._given + np.arange(len(fresh))
            self._given += len(fresh)
        self._of_row = dict(zip(view.rows.tolist(), self._numbers[view.kind].tolist(), strict=True))
        return self._numbers

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Rows, and with them kinds, were laid out anew."""
        self._of_row = {new_row[row]: number for row, number in self._of_row.items() if row in new_row}
        self._numbers = None
