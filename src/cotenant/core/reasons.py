"""Why a job does not run, taken from the decision itself."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import StrEnum

_EPOCH_S = 1e9  # clocks beyond this count from 1970


def moment(time_s: float) -> str:
    """A moment as people read it: seconds of a simulated run, or the time of day of a live one."""
    if time_s == float("inf"):
        return "no fixed time"
    return time.strftime("%H:%M:%S", time.localtime(time_s)) if time_s > _EPOCH_S else f"{time_s:.0f} s"


class Cause(StrEnum):
    """The kinds of answers to `why`."""

    RUNNING = "running"
    FINISHED = "finished"
    NOT_SUBMITTED = "not submitted yet"
    HELD = "held"
    EXCEEDS_CLUSTER = "exceeds the cluster"
    OVER_QUOTA = "over quota"
    USER_LIMIT = "over the user's limit"
    CAPACITY = "waiting for capacity"
    FRAGMENTED = "fragmented"
    BEHIND_HEAD = "held back by policy"
    RESERVED = "held back by a reservation"
    ASIDE = "set aside"
    DEPENDENCY = "waiting for another job"
    ARRAY = "waiting for its array"


@dataclass(frozen=True, slots=True)
class Reason:
    """One answer. `position` counts from 1 among waiting jobs; `free_gpus` is what was left at its turn."""

    job: str
    at_s: float
    cause: Cause
    text: str
    need_gpus: int = 0
    free_gpus: int = 0
    position: int = 0
    waiting: int = 0
    ahead: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)
