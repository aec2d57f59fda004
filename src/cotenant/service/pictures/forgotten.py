"""Jobs that the book has forgotten, as far as pictures need them: made again of their accounts in the archive."""

from __future__ import annotations

import threading
from collections import deque
from math import inf

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.service.accounts.account import JobAccount, RunAccount
from cotenant.service.accounts.archive import read_archive
from cotenant.service.store.job import Attempt, LiveJob
from cotenant.service.store.store import Store

MOST_JOBS = 50_000  # the newest


class Forgotten:
    """Reads the archive when it has grown, or when somebody asks for older times than before."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._upto, self._since_s = 0, inf
        self._jobs: dict[str, LiveJob] = {}

    def since(self, since_s: float) -> dict[str, LiveJob]:
        """Those that ended then or later, by id. Accounts that do not say on which GPUs a job was are left out."""
        upto = self._store.book.archived
        with self._lock:
            if upto != self._upto or since_s < self._since_s:
                found = deque[LiveJob](maxlen=MOST_JOBS)
                for account in read_archive(self._store.journal, upto, since_s):
                    if (account.ended_s or 0.0) >= since_s and any(run.places for run in account.runs):
                        found.append(remade(account))
                self._upto, self._since_s, self._jobs = upto, since_s, {job.id: job for job in found}
            return self._jobs


def remade(account: JobAccount) -> LiveJob:
    """A job with attempts, of which only what an account keeps is true."""
    spec = JobSpec(run="-", name=account.name, gpus=account.runs[0].gpus, model=account.model)
    return LiveJob(
        account.id, 0, spec, account.tenant, account.user, account.submitted_s, JobState(account.state),
        ended_s=account.ended_s, attempts=[_attempt(number, run) for number, run in enumerate(account.runs, start=1)],
    )  # fmt: skip


def _attempt(number: int, run: RunAccount) -> Attempt:
    began_s = run.had[0][0]
    return Attempt(
        number, run.places, began_s, began_s, run.had[-1][1], why=run.why, lost_s=run.lost_s, stop_s=run.stop_s,
        start_s=run.start_s, had=run.had, end=run.end,
    )  # fmt: skip
