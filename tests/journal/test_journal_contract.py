"""The whole contract on each journal, PostgreSQL included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from journal_postgres import PostgresServer

from cotenant.journal import Journal, MemoryJournal, MemoryStore, open_journal
from cotenant.journal.sql import SqlJournal
from cotenant.testing.journal import JournalContract, JournalFactory

NoSpace = Callable[[Journal], AbstractContextManager[None]]


class TestMemory(JournalContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def journal_factory(self, store: MemoryStore) -> JournalFactory:
        return lambda clock=time.time: MemoryJournal(store, clock)

    @pytest.fixture
    def no_space(self, store: MemoryStore) -> NoSpace:
        @contextmanager
        def full(_journal: Journal) -> Iterator[None]:
            store.room = 5
            yield
            store.room = None

        return full


class TestSqlite(JournalContract):
    @pytest.fixture
    def journal_factory(self, tmp_path: Path) -> JournalFactory:
        return lambda clock=time.time: open_journal(str(tmp_path / "journal.db"), clock)

    @pytest.fixture
    def no_space(self) -> NoSpace:
        @contextmanager
        def full(journal: Journal) -> Iterator[None]:
            assert isinstance(journal, SqlJournal)
            pages = journal._writer.call(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
            _max_pages(journal, int(pages or 0))
            yield
            _max_pages(journal, 1 << 30)

        return full


def _max_pages(journal: SqlJournal, pages: int) -> None:
    journal._writer.call(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar())


@pytest.mark.slow
class TestPostgresql(JournalContract):
    @pytest.fixture
    def journal_factory(self, postgres_url: str) -> JournalFactory:
        return lambda clock=time.time: open_journal(postgres_url, clock)

    @pytest.fixture
    def no_space(self, postgres: PostgresServer, postgres_url: str) -> NoSpace:
        schema = postgres_url.partition("%3D")[2]

        @contextmanager
        def full(_journal: Journal) -> Iterator[None]:
            """The server answers as it does when its disk is full: SQLSTATE 53100."""
            postgres.execute(
                f"CREATE FUNCTION {schema}.no_space() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"
            )
            table = f"{schema}.cotenant_record"
            postgres.execute(
                f"CREATE TRIGGER no_space BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {schema}.no_space()"
            )
            yield
            postgres.execute(f"DROP TRIGGER no_space ON {table}")

        return full
