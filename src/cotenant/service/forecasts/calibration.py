"""How wide intervals have to be here, learned from forecasts that came true or did not (split conformal prediction).

The error of a forecast is measured in half-widths of the interval that beliefs alone gave. Of the newest errors at each
moment (submission, start, half-way) the quantile that nine of ten stay below is the factor by which the next intervals
are stretched, or narrowed. While there are few errors it stays near 1. Errors come from the journal's records alone,
so a restart changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import ceil, exp, log
from typing import Any

from cotenant.service.forecasts.foretold import MOMENTS, ForecastRecord

KEPT = 200  # newest errors per moment
_INSIDE = 0.9
_FEW = 10  # errors at which the learned factor counts half
_LEAST, _MOST = 0.25, 8.0


class Calibration:
    """The newest errors by moment."""

    def __init__(self, rows: Mapping[str, Iterable[float]] | None = None) -> None:
        self._errors = {at: deque((rows or {}).get(at, ()), KEPT) for at in MOMENTS}
        self.scales = {at: self._scale(at) for at in MOMENTS}  # by how much intervals are to be stretched

    def add(self, at: str, told: ForecastRecord, ended_s: float) -> None:
        """A job of which something was foretold has ended."""
        if at in self._errors:
            self._errors[at].append(round(abs(told.error(ended_s)), 4))
            self.scales = {**self.scales, at: self._scale(at)}

    def _scale(self, at: str) -> float:
        errors = sorted(self._errors[at])
        if not errors:
            return 1.0
        rank = min(ceil(_INSIDE * (len(errors) + 1)), len(errors))
        learned = min(max(errors[rank - 1], _LEAST), _MOST)
        return exp(log(learned) * len(errors) / (len(errors) + _FEW))

    def rows(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {at: list(errors) for at, errors in self._errors.items() if errors}
