"""Output of ended attempts: moved out of the backend's care and kept until their job is retired."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path


class Logs:
    """One folder per attempt, named by its key, with the newest part of each stream."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, key: str, paths: Mapping[str, Sequence[str]]) -> None:
        """Move the files of an attempt here. Doing it twice, or after a crash half-way, is harmless.

        The oldest goes first: what a crash leaves behind keeps its rank, for ranks count from the newest.
        """
        target = self._folder / key
        for stream, files in paths.items():
            for rank, name in enumerate(files, 1):
                age = len(files) - rank
                if not os.path.exists(name):
                    continue
                target.mkdir(parents=True, exist_ok=True)
                shutil.move(name, target / (stream if age == 0 else f"{stream}.{age}"))

    def find(self, key: str, stream: str) -> Path | None:
        """The newest part of a stream, if it was kept."""
        path = self._folder / key / stream
        return path if path.exists() else None

    def retire(self, key: str) -> None:
        """Delete what was kept of an attempt."""
        shutil.rmtree(self._folder / key, ignore_errors=True)
