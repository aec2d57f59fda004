"""What beliefs are fed by: live jobs and what these report, as far as beliefs look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cotenant.core.jobspec import JobSpec


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


class WatchedRun(Protocol):
    """One attempt of a job."""

    @property
    def gpus(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Nodes by name, and indexes of their GPUs."""

    @property
    def launched_s(self) -> float:
        """When."""


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
