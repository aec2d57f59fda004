"""Where accounts go when their jobs are forgotten: records of the journal that are never pruned.

The account enters the archive in the same append that takes the job out of the book, so that at every moment, and
after every crash, each run is in exactly one of the two. A copy of the journal has the archive in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from cotenant.journal import Entry, Journal
from cotenant.service.accounts.account import JobAccount, account_of
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView

ARCHIVE = "@archive"  # the job to which these records belong: no id looks like this
_KIND = "account"


def archived(jobs: Sequence[LiveJob]) -> Entry:
    """What to journal when these jobs, which have ended, are forgotten."""
    return Entry(_KIND, ARCHIVE, {"jobs": [account_of(job, 0.0) for job in jobs]})


def read_archive(journal: Journal, upto: int, since_s: float = 0.0) -> Iterator[JobAccount]:
    """Accounts in records up to this number, of jobs that ended at `since_s` or later."""
    for record in journal.read_job(ARCHIVE):
        if record.seq > upto:
            return
        if record.time_s >= since_s:  # else all of them had ended before
            yield from map(JobAccount.read, record.data["jobs"])


def all_accounts(store: Store, view: BookView, now_s: float, since_s: float = 0.0) -> Iterator[JobAccount]:
    """The accounts of all jobs at the moment of a view, each once."""
    live = (account_of(job, now_s) for job in view.jobs.values())
    return chain(read_archive(store.journal, view.seq, since_s), live)
