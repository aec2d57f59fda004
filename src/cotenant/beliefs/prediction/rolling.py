"""The rolling estimate P_R of QSSF (Helios, SC'21, section 4.2.2), from finished jobs only. Seconds.

1. user unknown: mean of all jobs with as many GPUs;
2. user known, no similar name: mean of this user's jobs with as many GPUs;
3. similar name: mean of this user's jobs of that kind, each older one weighing `decay` times the next.

Without a job of as many GPUs that condition is dropped. `decay=1` weighs all alike. All O(1) per job.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cotenant.beliefs.prediction.names import NO_NAME, NameKinds
from cotenant.core.workload import Floats, Workload


@dataclass(slots=True)
class Mean:
    """A mean in which a value weighs `decay` for every value that came after it."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, decay: float = 1.0) -> None:
        """One more value, the newest."""
        self.total = self.total * decay + value
        self.weight = self.weight * decay + 1.0

    @property
    def value(self) -> float:
        """The mean; needs at least one value."""
        return self.total / self.weight


class Rolling:
    """What finished jobs say about the next one."""

    def __init__(self, decay: float = 0.5, prior_s: float = 3600.0) -> None:
        self._decay, self._prior_s = decay, prior_s
        self._means: dict[tuple[int, int, int], Mean] = {}

    def add(self, user: int, kind: int, gpus: int, duration_s: float) -> None:
        """A job has ended."""
        means = self._means
        for key in ((-1, -1, -1), (-1, -1, gpus), (user, -1, -1), (user, -1, gpus)):
            means.setdefault(key, Mean()).add(duration_s)
        if kind != NO_NAME:
            means.setdefault((user, kind, -1), Mean()).add(duration_s, self._decay)

    def estimate(self, user: int, kind: int, gpus: int) -> float:
        """Seconds that a job submitted now is expected to last."""
        keys = [(user, -1, gpus), (user, -1, -1), (-1, -1, gpus), (-1, -1, -1)]
        if kind != NO_NAME:
            keys.insert(0, (user, kind, -1))
        for key in keys:
            mean = self._means.get(key)
            if mean is not None:
                return mean.value
        return self._prior_s


def known_since(work: Workload) -> Floats:
    """When each job's duration became known, s: the end in `extra["ended_s"]` where a workload has it, else
    submission plus duration, as if it had never waited.
    """
    ended = work.extra.get("ended_s")
    return work.submit_s + work.duration_s if ended is None else ended.astype(np.float64)


def kinds_of(work: Workload) -> list[int]:
    """Kind of name per row, in order of submission; the name of a job is its `model` column."""
    kinds = NameKinds()
    of_code: dict[int, int] = {}
    return [
        of_code[code] if code in of_code else of_code.setdefault(code, kinds.kind(work.model.names[code]))
        for code in work.model.code.tolist()
    ]


def replay(work: Workload, ended_s: Floats) -> Iterator[tuple[bool, int]]:
    """(True, row) when a job ends, (False, row) when one is submitted, in the order in which this is known.

    A job that ends at the very moment of a submission is not yet known to it.
    """
    order = np.argsort(ended_s, kind="stable")
    ends, rows = ended_s[order].tolist(), order.tolist()
    at = 0
    for row, now in enumerate(work.submit_s.tolist()):
        while at < len(ends) and ends[at] < now:
            yield True, rows[at]
            at += 1
        yield False, row


def rolling(work: Workload, decay: float = 0.5, prior_s: float = 3600.0) -> Floats:
    """P_R of every job at its submission, s."""
    past = Rolling(decay, prior_s)
    users, gpus, kinds = work.user.code.tolist(), work.gpus.tolist(), kinds_of(work)
    durations = work.duration_s.tolist()
    belief = np.empty(len(work))
    for ended, row in replay(work, known_since(work)):
        if ended:
            past.add(users[row], kinds[row], gpus[row], durations[row])
        else:
            belief[row] = past.estimate(users[row], kinds[row], gpus[row])
    return belief


def user_median(work: Workload, prior_s: float = 3600.0) -> Floats:
    """Median duration of the user's ended jobs, else of everybody's, else the prior, s."""
    past: dict[int, list[float]] = {}
    users, durations = work.user.code.tolist(), work.duration_s.tolist()
    belief = np.empty(len(work))
    for ended, row in replay(work, known_since(work)):
        if ended:
            for who in (users[row], -1):
                insort(past.setdefault(who, []), durations[row])
        else:
            known = past.get(users[row]) or past.get(-1) or [prior_s]
            belief[row] = (known[len(known) // 2] + known[(len(known) - 1) // 2]) / 2
    return belief
