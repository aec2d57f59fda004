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
    NETWORK = "waiting for the network"


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """How the tenant of a waiting job stands after the last decision, in GPUs, where there is a tree of tenants."""

    tenant: str
    limit: int  # the most that it may hold now
    used: int
    guaranteed: int
    need: int  # of the job
    reclaiming: bool = False  # the job is within the guarantee, and borrowed GPUs are taken back for it
    reserved_for: str = ""  # the job for which GPUs are kept from borrowers, "" for none
    next_s: float = float("inf")  # when the engine looks again because of that

    @property
    def borrowed(self) -> int:
        """What it holds beyond its guarantee."""
        return max(self.used - self.guaranteed, 0)


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
    tenant: TenantFacts | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON; of tenants only where there are any."""
        return {key: value for key, value in asdict(self).items() if key != "tenant" or value is not None}
