"""What the learned estimate looks at: one row of numbers per job, as known at its submission.

User, virtual cluster, kind of name, GPUs and cores asked, hour and weekday (Helios, SC'21, section 4.2.2, less the
month, which tells a model trained on the past only that now is later), and what the past says of such jobs: the
rolling estimate, recent durations of the same user, size and VC, and the rhythm of the user's submissions.
Durations enter as log(1 + seconds). Time of day and weekday count from the log's second 0: their phase is
unknown and does not matter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from cotenant.beliefs.prediction.past import replay
from cotenant.beliefs.prediction.rolling import Mean, Rolling, kinds_of
from cotenant.core.workload import Floats, Workload

CATEGORICAL = ("user", "vc", "kind")
COLUMNS = (
    *CATEGORICAL, "gpus", "cpus", "hour", "weekday", "rolling", "user_last", "user_recent", "user_size_last",
    "user_size_recent", "user_finished", "vc_recent", "size_recent", "since_user_s", "user_last_hour",
    "same_as_before",
)  # fmt: skip
_RECENT = 0.8  # weight of the job before the newest, in recent means
_HOUR_S, _DAY_S = 3600.0, 86400.0
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Features:
    """The table, the rolling estimates in seconds, and which columns hold codes."""

    table: Floats
    rolling_s: Floats
    categorical: tuple[int, ...] = tuple(range(len(CATEGORICAL)))

    @property
    def usual(self) -> Floats:
        """Log duration of the user's jobs of late, else the rolling estimate."""
        recent, rolling = (self.table[:, COLUMNS.index(name)] for name in ("user_recent", "rolling"))
        return np.where(np.isnan(recent), rolling, recent)


class _Recent:
    """Recent mean and last value of log durations, per key."""

    def __init__(self) -> None:
        self._mean: dict[tuple[int, int], Mean] = {}
        self._last: dict[tuple[int, int], float] = {}

    def add(self, key: tuple[int, int], value: float) -> None:
        self._mean.setdefault(key, Mean()).add(value, _RECENT)
        self._last[key] = value

    def mean(self, key: tuple[int, int]) -> float:
        found = self._mean.get(key)
        return found.value if found is not None else _NAN

    def last(self, key: tuple[int, int]) -> float:
        return self._last.get(key, _NAN)


class _Rhythm:
    """When and what each user submitted before; needs no durations."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}
        self._before: dict[int, tuple[float, int]] = {}

    def submit(self, user: int, gpus: int, now_s: float) -> tuple[float, float, float]:
        """Seconds since the user's submission before, their number within the hour, whether of the same size."""
        last_s, last_gpus = self._before.get(user, (_NAN, -1))
        times = self._times.setdefault(user, deque())
        while times and times[0] < now_s - _HOUR_S:
            times.popleft()
        found = (now_s - last_s, float(len(times)), float(last_gpus == gpus))
        times.append(now_s)
        self._before[user] = (now_s, gpus)
        return found


def make_features(work: Workload, ended_s: Floats, decay: float, prior_s: float) -> Features:
    """One pass over submissions and ends. A row never depends on a job that had not ended before it."""
    past, recent, rhythm = Rolling(decay, prior_s), _Recent(), _Rhythm()
    finished: dict[int, int] = {}
    users, vcs, kinds = work.user.code.tolist(), work.tenant.code.tolist(), kinds_of(work)
    gpus, cpus, submit = work.gpus.tolist(), work.cpus.tolist(), work.submit_s.tolist()
    duration, logs = work.duration_s.tolist(), np.log1p(work.duration_s).tolist()
    table = np.empty((len(work), len(COLUMNS)))
    rolling_s = np.empty(len(work))
    for ended, row in replay(work.submit_s, ended_s):
        user, vc, size = users[row], vcs[row], gpus[row]
        # Keys: (user, size) and three kinds of totals, told apart by negative second parts.
        keys = ((user, size), (user, -1), (vc, -2), (size, -3))
        if ended:
            past.add(user, kinds[row], size, duration[row])
            finished[user] = finished.get(user, 0) + 1
            for key in keys:
                recent.add(key, logs[row])
            continue
        rolling_s[row] = past.estimate(user, kinds[row], size)
        since_s, within_hour, same = rhythm.submit(user, size, submit[row])
        table[row] = (
            user, vc, kinds[row], size, cpus[row], submit[row] % _DAY_S / _HOUR_S, submit[row] // _DAY_S % 7,
            np.log1p(rolling_s[row]), recent.last(keys[1]), recent.mean(keys[1]), recent.last(keys[0]),
            recent.mean(keys[0]), finished.get(user, 0), recent.mean(keys[2]), recent.mean(keys[3]),
            since_s, within_hour, same,
        )  # fmt: skip
    return Features(table, rolling_s)
