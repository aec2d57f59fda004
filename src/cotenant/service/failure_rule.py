"""When failures of jobs speak against the node or GPU on which they ran."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core.errors import InputError


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A node or GPU is not well on which so many jobs failed within so many seconds, while they, or others like them,
    ran for longer elsewhere and not there."""

    jobs: int = 3
    window_s: float = 3600.0

    @classmethod
    def parse(cls, text: str) -> FailureRule:
        """`3/3600`: three jobs within an hour; `never`."""
        if text == "never":
            return cls(0)
        jobs, slash, window = text.partition("/")
        if not (jobs.isdigit() and slash and window.isdigit() and int(jobs) and int(window)):
            raise InputError(f"--unhealthy-after {text}: write JOBS/SECONDS, as in 3/3600, or never")
        return cls(int(jobs), float(window))


USUAL = FailureRule()
