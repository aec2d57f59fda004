"""States of a live job and the moves between them, as one table.

A repeated report of the present state is accepted and changes nothing; any other move that is not in the
table is a bug of ours and raises. Final states are never left.
"""

from __future__ import annotations

from enum import StrEnum

from cotenant.core.errors import InvariantError


class JobState(StrEnum):
    """Where a job is."""

    PENDING = "pending"  # waits for GPUs, for others (`after`), or is held
    STARTING = "starting"  # the launch is journaled, the process not yet seen
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped in place: keeps its process but not its GPUs, and waits for them
    STOPPING = "stopping"  # asked to end; its GPUs are not free yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
WAITING = frozenset({JobState.PENDING, JobState.SUSPENDED})
ON_GPUS = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})

_S = JobState
MOVES: dict[JobState, frozenset[JobState]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.SUCCEEDED, _S.CANCELLED, _S.FAILED}),  # ahead of GPUs it may succeed at once
    _S.STARTING: frozenset({_S.RUNNING, _S.PENDING, _S.STOPPING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.STOPPING, _S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUSPENDED: frozenset({_S.STARTING, _S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.STOPPING: frozenset({_S.SUSPENDED, _S.PENDING, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def move(job: str, now: JobState, to: JobState) -> JobState:
    """The next state, if the table allows it."""
    if to != now and to not in MOVES[now]:
        raise InvariantError(f"job {job} cannot go from {now} to {to}")
    return to
