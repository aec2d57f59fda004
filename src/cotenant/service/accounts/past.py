"""What tenants have used, of which older use counts less: a GPU-second of a half-life ago counts half.

It is worked out from accounts whenever an engine begins, so that it survives restarts and changes of policy and nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from cotenant.service.accounts.account import stretches
from cotenant.service.accounts.archive import read_archive
from cotenant.service.store.job import Stretches
from cotenant.service.store.store import Store

_HALF_LIVES = 30.0  # before which nothing counts: a part in 10**9


def decayed_gpus(gpus: int, had: Stretches, now_s: float, half_life_s: float) -> float:
    """What a run adds to the mean of the GPUs that its tenant held: the integral of 2 ** (-age / half-life) over its
    stretches, divided by that over all time. Who has held 5 GPUs since ever has 5."""
    weight = 0.0
    for from_s, to_s in had:
        weight += 0.5 ** ((now_s - to_s) / half_life_s) - 0.5 ** ((now_s - from_s) / half_life_s)
    return gpus * weight


@dataclass(frozen=True, slots=True)
class _Archived:
    """What the archive says: all of it up to a record, decayed until a moment."""

    upto: int = 0
    half_life_s: float = inf
    at_s: float = 0.0
    gpus: Mapping[str, float] = field(default_factory=dict)


class PastUse:
    """The GPUs that tenants held in the mean, older use counting less.

    The archive is read when there is more in it: by `catch_up`, without the lock.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._archived = _Archived()

    @property
    def _half_life_s(self) -> float:
        tree = self._store.book.tenants.tree
        return tree.half_life_s if tree is not None else inf

    def catch_up(self) -> _Archived:
        """Read the archive if there is more in it, or another half-life; else this costs nothing."""
        upto, half_life_s, known = self._store.book.archived, self._half_life_s, self._archived
        if half_life_s == inf or (upto, half_life_s) == (known.upto, known.half_life_s):
            return known
        found: defaultdict[str, float] = defaultdict(float)
        now_s = self._store.clock()
        for job in read_archive(self._store.journal, upto, now_s - _HALF_LIVES * half_life_s):
            for run in job.runs:
                found[job.tenant] += decayed_gpus(run.gpus, run.had, now_s, half_life_s)
        self._archived = _Archived(upto, half_life_s, now_s, found)
        return self._archived

    def of(self, now_s: float) -> Mapping[str, float]:
        """The past use of each tenant in GPUs, up to now, with the store's lock held.

        None where only what is held now counts.
        """
        half_life_s = self._half_life_s
        if half_life_s == inf:
            return {}
        known = self.catch_up()
        aged = 0.5 ** ((now_s - known.at_s) / half_life_s)
        found = defaultdict(float, {tenant: gpus * aged for tenant, gpus in known.gpus.items()})
        oldest_s = now_s - _HALF_LIVES * half_life_s
        for job in self._store.book.jobs.values():
            if job.attempts and (job.ended_s is None or job.ended_s > oldest_s):
                runs = ((attempt.size, stretches(attempt, now_s)) for attempt in job.attempts)
                found[job.tenant] += sum(decayed_gpus(gpus, had, now_s, half_life_s) for gpus, had in runs)
        return found
