"""Jobs that somebody else has made in the engine where jobs run, and that wait for us to say where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """One of them. `name` is of this very one, and never of another; `text` says to people what it is."""

    name: str
    text: str
    gpus: int
    gpu_type: str = ""
    cpus: float = 0.0
    mem_gib: float = 0.0
    tenant: str = ""


@runtime_checkable
class TakesForeign(Protocol):
    """A backend in which others make jobs. One of them is launched by a `LaunchSpec` that has its name as `foreign`."""

    def offered(self) -> tuple[ForeignJob, ...]:
        """Those that wait, as far as is known just now."""
        ...

    def decline(self, name: str) -> None:
        """It will never be launched: let it go. May be repeated."""
        ...
