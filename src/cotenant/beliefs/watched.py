"""What beliefs are fed by: live jobs and what these report, as far as beliefs look at them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from cotenant.core.jobspec import JobSpec

_SET = re.compile(r"\w+=\S*")  # a variable before a command
_SCRIPT = re.compile(r"[\w./-]+\.(?:py|sh|pl|jl|R)")


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


def program_of(run: str) -> str:
    """What a command runs, by the names of its program and script: `python train.py`."""
    words = [word for word in re.split(r"[\s;&|()]+", run) if word and not _SET.fullmatch(word)]
    if not words:
        return ""
    script = next((word for word in words[1:] if _SCRIPT.fullmatch(word)), "")
    if not script and "-m" in words[1:-1]:
        script = words[words.index("-m") + 1]
    return " ".join(word.rpartition("/")[2] for word in (words[0], script) if word)


def learned_kind(job: Watched) -> tuple[str, int]:
    """What jobs have in common that run alike: their model, else their tenant and program; and their GPUs."""
    return job.spec.model or f"{job.tenant}:{program_of(job.spec.run)}", job.spec.gpus
