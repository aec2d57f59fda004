"""The journal: an append-only log with group commit, one snapshot, and replay. Nothing acknowledged is lost.

SQLite by default, PostgreSQL by address, a twin in memory for tests; SQLAlchemy is imported when a journal on
disk is opened. `cotenant.testing.journal` holds the contract that every implementation passes.
"""

from cotenant.journal.base import Entry, Journal, Record, recover
from cotenant.journal.errors import (
    BadEntry,
    JournalAway,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalReadOnly,
    JournalTooNew,
    JournalUnavailable,
)
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.journal.urls import open_journal

__all__ = [
    "BadEntry",
    "Entry",
    "Journal",
    "JournalAway",
    "JournalBusy",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalReadOnly",
    "JournalTooNew",
    "JournalUnavailable",
    "MemoryJournal",
    "MemoryStore",
    "Record",
    "open_journal",
    "recover",
]
