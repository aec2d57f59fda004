"""What beliefs are fed by: live jobs and what these report, as far as beliefs look at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from cotenant.beliefs.speed import SpeedBelief
from cotenant.core.jobspec import JobSpec

_SCRIPT = re.compile(r"(?:^|[\s/'\"=])([\w.-]+\.py)\b|\s-m\s+([\w.]+)")
_READ = 1000  # characters of a command in which its program is looked for


class Told(Protocol):
    """The newest word of a job."""

    @property
    def step(self) -> int | None:
        """Steps made so far."""

    @property
    def total(self) -> int | None:
        """Steps in all."""

    @property
    def step_time_s(self) -> float | None:
        """What a step takes of late."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """What else it says."""

    @property
    def stages(self) -> Mapping[str, float]:
        """Seconds per step in each stage that it marks."""

    @property
    def waited_s(self) -> float:
        """Seconds per step that it waits for its turns at them; 0: it takes none."""

    @property
    def speed(self) -> SpeedBelief:
        """How fast it goes, by what it said."""

    @property
    def marks(self) -> Sequence[tuple[float, int]]:
        """When it was heard to have made so many steps, the last few times."""


class WatchedRun(Protocol):
    """One attempt of a job."""

    @property
    def gpus(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Nodes by name, and indexes of their GPUs."""

    @property
    def launched_s(self) -> float:
        """When."""

    @property
    def level(self) -> int:
        """Its steps are cut into 2**level sub-batches."""


class Watched(Protocol):
    """A live job."""

    id: str
    order: int
    spec: JobSpec
    tenant: str
    stop_why: str

    @property
    def attempts(self) -> Sequence[WatchedRun]:
        """All of them, the newest last."""

    @property
    def last(self) -> WatchedRun:
        """The newest."""

    @property
    def key(self) -> str:
        """Of the newest."""

    @property
    def size(self) -> int:
        """GPUs that it has, or asks for."""


@lru_cache(4096)
def program(run: str) -> str:
    """What a command runs: its script or module where it is Python's, else its first word."""
    found = _SCRIPT.search(run[:_READ])
    if found is not None:
        return found[1] or found[2]
    words = [word for word in run[:_READ].split() if "=" not in word]
    return words[0].rsplit("/", 1)[-1] if words else ""


def learned_kind(job: Watched) -> tuple[str, int]:
    """What jobs have in common that run alike: their model, else their tenant and program; and their GPUs."""
    return job.spec.model or f"{job.tenant}:{program(job.spec.run)}", job.spec.gpus
