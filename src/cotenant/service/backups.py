"""Copies of the journal, by themselves: every so often, the newest ones kept."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.journal import Journal

PREFIX = "auto-"
_log = logging.getLogger(__name__)


class Backups:
    """A thread that copies the journal to `folder`. Only copies that it made itself are ever deleted."""

    def __init__(self, journal: Journal, folder: Path, every_s: float, keep: int) -> None:
        self._journal, self._folder, self._every_s, self._keep = journal, folder, every_s, keep
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)

    def start(self) -> None:
        """Begin; the first copy is made when the first period is over. Nobody who wants none (0) gets any."""
        if self._every_s > 0:
            self._thread.start()

    def stop(self) -> None:
        """End, after a copy that is being made."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.copy()
            except (CotenantError, OSError):
                _log.exception("no backup was made")

    def copy(self) -> Path:
        """Make one copy now, and delete the oldest beyond those to keep."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{self._journal.last_seq}.db"
        if not path.exists():
            self._journal.backup(path)
            _log.info("backup %s", path.name)
        made = sorted(self._folder.glob(f"{PREFIX}*.db"), key=lambda one: (one.stat().st_mtime_ns, one.name))
        for old in made[: -self._keep]:
            old.unlink(missing_ok=True)
        return path
