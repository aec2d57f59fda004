"""How many nodes will be busy: the mean over the next F and 2F steps, as known now.

The learned forecast is direct: one gradient-boosted model per window, whose target is the mean of that window less the
present value. So nothing is fed back, and no feature is younger than the moment of the forecast, which
a model of single steps with lags shorter than its horizon cannot say (a flaw of the released code).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.learning.boosting import Boosting, fit
from cotenant.learning.one_row import OneRow
from cotenant.power.windows import DAY, WEEK, Floats, features, features_now, mean_ahead

_OUTAGE = 0.25  # of the usual number of busy nodes: steps below it teach nothing
_LEAST_ROWS = 2 * DAY


class Forecast(Protocol):
    """What the rules ask. `observe` comes once per step, before `means`."""

    def observe(self, time_s: float, used: float) -> None:
        """The present step: seconds since a midnight that began a Thursday (1970-01-01), and busy nodes."""

    def means(self, steps: int) -> tuple[float, float]:
        """Mean of busy nodes over `steps` and over twice as many, the present one included."""


class PerfectForecast:
    """The truth, for comparison; windows shorten at the end of the series."""

    def __init__(self, used: NDArray[np.generic]) -> None:
        self._used = np.asarray(used, np.float64)
        self._at = -1

    def observe(self, time_s: float, used: float) -> None:
        """Go on by one step."""
        self._at += 1

    def means(self, steps: int) -> tuple[float, float]:
        """Means of what will come."""
        now = self._at
        return float(self._used[now : now + steps].mean()), float(self._used[now : now + 2 * steps].mean())


class LearnedForecast:
    """Learns from all steps seen so far; trained anew every `refresh` steps. Before two days are seen: as now."""

    def __init__(self, ahead: int, refresh: int = WEEK, rounds: int = 100, models: int = 5, seed: int = 0) -> None:
        if min(ahead, refresh, rounds, models) < 1:
            raise InputError("forecast: ahead, refresh, rounds and models must be at least 1")
        self._ahead, self._refresh = ahead, refresh
        # Few leaves and many rows in each: a month or two hold few independent days.
        # Several models on different draws, averaged, so that the forecast depends little on the seed.
        self._hows = [Boosting(rounds=rounds, leaves=15, min_rows=50, seed=seed * models + at) for at in range(models)]
        self._time: list[float] = []
        self._used: list[float] = []
        self._models: OneRow | None = None  # those for the near window, then those for the far one
        self._fitted = 0
        self.trainings = 0

    def learn(self, time_s: Floats, used: Floats) -> None:
        """Take over a history in steps; NaN where it has gaps."""
        self._time += time_s.tolist()
        self._used += used.tolist()

    def observe(self, time_s: float, used: float) -> None:
        """One more step."""
        self._time.append(time_s)
        self._used.append(used)

    def means(self, steps: int) -> tuple[float, float]:
        """Forecasts from the present step; only for the window that it was made for."""
        if steps != self._ahead:
            raise InputError(f"forecast: made for {self._ahead} steps ahead, asked for {steps}")
        if self._models is None or len(self._used) - self._fitted >= self._refresh:
            self._fit()
        now = self._used[-1]
        if self._models is None:
            return now, now
        reach = WEEK + 2 * self._ahead + 1
        row = features_now(np.array(self._time[-reach:]), np.array(self._used[-reach:]), self._ahead)
        changes, count = self._models.predict(row[0]).tolist(), len(self._hows)
        return now + sum(changes[:count]) / count, now + sum(changes[count:]) / count

    def _fit(self) -> None:
        """Windows that ended by now teach; the others are not known yet."""
        time_s, used = np.array(self._time), np.array(self._used)
        table = features(time_s, used, self._ahead)
        usual = float(np.nanmedian(used)) if np.isfinite(used).any() else np.nan
        taught = []
        for steps in (self._ahead, 2 * self._ahead):
            change = mean_ahead(used, steps) - used
            rows = np.isfinite(change) & (used > _OUTAGE * usual)
            rows[:DAY] = False
            if rows.sum() < _LEAST_ROWS:
                return  # before anything is trained: the far window has its rows later than the near one
            taught.append((table[rows], change[rows]))
        self._models = OneRow([fit(*known, how) for known in taught for how in self._hows])
        self._fitted = len(used)
        self.trainings += 1
