"""Checkpoints that are whole or absent: written aside, synced to disk, renamed, and checked before use.

    DIR/checkpoint-00000007-step-120/   what save_fn wrote, and cotenant-checkpoint.json with step, time and file sizes
    DIR/.saving-...                     being written; a leftover of a killed process, removed by the next save
    DIR/.removing-...                   being deleted

The number grows with every save, so "newest" never depends on clocks or on the step a fresh run has reached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KEEP = 2
MANIFEST = "cotenant-checkpoint.json"
_NAME = re.compile(r"^checkpoint-(\d{8,})-step-(\d+)$")


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete checkpoint."""

    path: Path
    number: int
    step: int
    wall_time: float
    seconds: float


class CheckpointStore:
    """The checkpoints of one job in one directory. One process writes at a time."""

    def __init__(self, directory: str | os.PathLike[str], keep: int = KEEP) -> None:
        self.directory = Path(directory).absolute()
        self._keep = keep

    def newest(self) -> Saved | None:
        """The newest complete checkpoint; a torn one is passed over."""
        return next(self._complete(), None)

    def save(self, step: int, write: Callable[[Path], object]) -> Saved:
        """Let `write` fill an empty directory, then make it the newest checkpoint in one atomic move."""
        began = time.monotonic()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._sweep()
        number = 1 + max((int(match[1]) for match in map(_NAME.match, self._names()) if match), default=0)
        aside = self.directory / f".saving-{number:08d}-{os.getpid()}"
        aside.mkdir()
        try:
            write(aside)
            sizes = _sync_tree(aside)
            seconds = time.monotonic() - began
            manifest = {"version": 1, "step": step, "wall_time": time.time(), "seconds": seconds, "files": sizes}
            _write_synced(aside / MANIFEST, json.dumps(manifest).encode())
            _sync(aside)
            path = self.directory / f"checkpoint-{number:08d}-step-{step}"
            os.rename(aside, path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        _sync(self.directory)
        for old in list(self._complete())[self._keep :]:
            self._remove(old.path)
        return Saved(path, number, step, manifest["wall_time"], time.monotonic() - began)  # type: ignore[arg-type]

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _complete(self) -> Iterator[Saved]:
        """Complete checkpoints, newest first."""
        found = sorted(((int(m[1]), m[0]) for m in map(_NAME.match, self._names()) if m), reverse=True)
        for number, name in found:
            if (saved := _read(self.directory / name, number)) is not None:
                yield saved

    def _sweep(self) -> None:
        """Remove what earlier processes left half-written, half-deleted or torn."""
        whole = {saved.path.name for saved in self._complete()}
        for name in self._names():
            if name.startswith((".saving-", ".removing-")):
                shutil.rmtree(self.directory / name, ignore_errors=True)
            elif _NAME.match(name) and name not in whole:
                self._remove(self.directory / name)

    def _remove(self, path: Path) -> None:
        """Take it out of sight in one move first, so that a kill in the middle leaves no torn checkpoint."""
        doomed = path.with_name(f".removing-{path.name}")
        try:
            os.rename(path, doomed)
        except OSError:
            return
        shutil.rmtree(doomed, ignore_errors=True)


def _read(path: Path, number: int) -> Saved | None:
    """The checkpoint at `path` when its manifest is there and every file has the size it was saved with."""
    try:
        body = json.loads((path / MANIFEST).read_bytes())
        if any((path / name).stat().st_size != size for name, size in body["files"].items()):
            return None
        return Saved(path, number, int(body["step"]), float(body["wall_time"]), float(body["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _sync_tree(root: Path) -> dict[str, int]:
    """Force every file and folder below root to disk; the files' sizes by relative path."""
    sizes = {}
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder, name)
            if path.is_file() and path != root / MANIFEST:
                _sync(path)
                sizes[str(path.relative_to(root))] = path.stat().st_size
        _sync(Path(folder))
    return sizes


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
