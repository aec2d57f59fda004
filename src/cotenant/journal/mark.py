"""How far a journal has come, kept outside of it: so that an older copy, or one without its WAL, is noticed.

The number is written after every commit, without a flush: a power cut may leave it behind, never ahead. So a journal
that ends before its mark has lost records.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class HighMark:
    """A small file with one number, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def read(self) -> int:
        """The number, 0 where there is none."""
        try:
            text = self.path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return 0
        return int(text) if text.isdecimal() else 0

    def write(self, seq: int) -> None:
        """Overwrite the number in place, which needs no space; a disk that refuses is passed over."""
        with suppress(OSError):
            if self._handle is None:
                self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, f"{seq:020}\n".encode(), 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = None
