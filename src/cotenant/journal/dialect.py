"""What differs between the databases; everything else about a SQL journal is shared."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError


class FailureCause(enum.Enum):
    """Why the database refused."""

    ENTRY = "entry"  # something about these rows; others may pass
    FULL = "full"  # no space; nothing written
    READ_ONLY = "read-only"  # the file may not be written
    BUSY = "busy"  # another program holds the database
    LOST = "lost"  # the connection is gone and it is unknown whether the commit took place
    BROKEN = "broken"  # the disk does not do its duty; going on would be a lie
    CORRUPT = "corrupt"  # the file is damaged


class Dialect(ABC):
    """One database at one address. `name` is how it is called in messages, without any password."""

    name: str
    types: ClassVar[Mapping[str, str]]
    far: ClassVar[bool] = False  # whether it can go away by itself and come back

    @abstractmethod
    def hold(self) -> None:
        """Become the one writer as far as that is possible before connecting; `JournalBusy` if it is not."""

    @abstractmethod
    def release(self) -> None:
        """Undo `hold`."""

    @abstractmethod
    def engine(self) -> Engine:
        """A pool of connections in which every commit is flushed to disk."""

    @abstractmethod
    def claim(self, connection: Connection) -> None:
        """Make `connection` the one that writes; `JournalBusy` when another process has it."""

    @abstractmethod
    def begin(self, connection: Connection) -> None:
        """First statement of a writing transaction."""

    def short_of(self) -> str:
        """What will keep the next append from being written, as far as it can be told without trying."""
        return ""

    def check(self, connection: Connection, until_s: float) -> None:
        """`JournalCorrupt` when the database finds damage in itself; gives up at `until_s` of the monotonic clock."""
        return None

    def passed(self) -> int:
        """Number of the last record that this journal is known to have held; 0 when nobody knows."""
        return 0

    def note(self, seq: int) -> None:
        """Remember, outside the database, that record `seq` is durable."""
        return None

    def displaced(self) -> str:
        """Why what is written would not be found again: the file was moved or replaced."""
        return ""

    @abstractmethod
    def cause(self, error: DBAPIError) -> FailureCause:
        """What an error of the driver means for the writer."""
