"""The archive of accounts lives in records that pruning spares, on a real server too."""

from __future__ import annotations

import time

from cotenant.journal import Entry, open_journal
from cotenant.service.accounts.account import JobAccount, RunAccount
from cotenant.service.accounts.archive import ARCHIVE, read_archive


def test_an_archive_on_postgresql_is_spared_by_pruning(postgres_url: str) -> None:
    job = JobAccount("1", "a", "x", "m", "failed", 5.0, 9.0, (RunAccount(2, ((6.0, 9.0),), 1.5, "failed"),))
    with open_journal(postgres_url) as journal:
        journal.append([Entry("account", ARCHIVE, {"jobs": [job]}), Entry("forget", data={"jobs": ["1"]})])
        journal.save_snapshot(2, b"{}")
        assert journal.prune(time.time() + 1e6, keep={ARCHIVE}) == 1
    with open_journal(postgres_url) as journal:
        assert list(read_archive(journal, 2)) == [job]
        assert list(read_archive(journal, 0)) == []
