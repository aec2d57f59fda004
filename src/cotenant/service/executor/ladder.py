"""The preemption ladder: how a job is brought to give its GPUs back, from the mildest way to the harshest.

1. Ask. A job that can save is told to (`should_stop`), and has the grace period to save and leave.
2. Suspend. One that cannot, or did not in time, or comes back much sooner this way, is stopped where it stands and
   its GPU memory taken out, without its help; its process stays and goes on later, on the same GPUs. Only where the
   planner wants it, only where the backend can, and only so many at a time, for every one keeps its host memory.
3. Stop. SIGTERM, and SIGKILL after another grace period: it starts again from its last checkpoint.

Held jobs that cannot save are suspended too; cancelled and overdue ones are not, and have one grace period from SIGTERM
to SIGKILL, or none where that is asked for. What each rung really cost goes to the journal. Everything here is
a function of the book and the time, so a restart goes on from where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from cotenant.backends.base import Capabilities, NodeInfo
from cotenant.core.lifecycle import JobState
from cotenant.service.store.book import Book
from cotenant.service.store.job import ASK, KILL, STOP, SUSPEND, LiveJob

MEMORY_SHARE = 0.5  # of a node's memory, which suspended jobs that say how much they need may hold together
ENDS = ("cancel", "timeout")  # reasons to stop for good
_LATER_S = 0.001  # a period is over when a little more than it has passed


@dataclass(frozen=True, slots=True)
class Rung:
    """What to do with a job that is to leave (empty: wait), and when to think again if nothing happens before."""

    verb: str = ""
    due_s: float = inf


def next_rung(job: LiveJob, now_s: float, grace_s: float, listens: bool, suspendable: bool) -> Rung:
    """Wait while there is hope that it leaves by itself, else the next rung.

    `listens`: it was asked and can save. `suspendable`: it may be suspended and `falls_still` if it does not leave;
    while its process has not been seen there is nothing to suspend.
    """
    over_s = job.stop_asked_s + grace_s
    if job.rung == SUSPEND:
        return Rung()
    if job.rung == KILL:
        return Rung(KILL)
    unseen = suspendable and job.last.started_s is None
    if now_s <= over_s and (listens or unseen):
        return Rung(due_s=over_s + _LATER_S)
    if suspendable and not unseen and job.rung in ("", ASK):
        return Rung(SUSPEND)
    told_s = job.stop_asked_s if job.stop_why in ENDS and not listens else over_s
    last_s = (job.rung_s if job.rung == STOP else told_s) + grace_s
    return Rung(KILL) if now_s > last_s else Rung(STOP, last_s + _LATER_S)


def falls_still(job: LiveJob, saves: bool) -> bool:
    """Whether suspending comes next for a job that is to leave: the planner wants it, or it was asked in vain."""
    return job.rung == ASK or (not job.rung and saves and job.stop_why in ("preempt", "turn", "split", "hold"))


def why_stop(job: LiveJob, now_s: float) -> tuple[str, float]:
    """Why a job on GPUs is to stop though nobody decided it (empty: it is not), and when it would be over time."""
    due_s, last = inf, job.last
    if job.stop_why:
        return "", inf
    if job.spec.max_runtime_s and job.state == JobState.RUNNING and last.since_s is not None:
        if last.active_s(now_s) > job.spec.max_runtime_s:
            return "timeout", inf
        due_s = last.since_s + (job.spec.max_runtime_s - last.ran_s) + _LATER_S
    if job.held:
        return "hold", inf
    return ("resize" if job.resize_to and job.state == JobState.RUNNING else ""), due_s


def may_suspend(
    job: LiveJob, book: Book, nodes: Iterable[NodeInfo], capabilities: Capabilities, max_suspended: int,
    going: Sequence[LiveJob] = (), ending: Collection[str] = (),
) -> bool:  # fmt: skip
    """Whether a job on GPUs could be suspended now: the backend can, and there is room for one more.

    `going`: others that are about to be suspended, of which the book does not know yet; `ending`: likewise, jobs that
    are about to be ended or to go on.
    """
    if not can_suspend(capabilities) or not job.spec.preemptible:
        return False
    if not job.spec.mem_gib and len(book.suspended) + len(book.on_gpus) + len(going) < max_suspended:
        return True
    stay = (one for one in book.suspended.values() if not one.stop_why and one.id not in ending)
    there = [*stay, *(one for one in book.on_gpus.values() if one.rung == SUSPEND), *going]
    if len(there) >= max_suspended:
        return False
    sizes = {node.name: node.mem_gib for node in nodes} if job.spec.mem_gib else {}
    for name, _ in job.last.gpus if job.spec.mem_gib and job.attempts else ():
        neighbours = (other for other in there if any(node == name for node, _ in other.last.gpus))
        held_gib = sum(other.spec.mem_gib for other in neighbours)
        if held_gib + job.spec.mem_gib > MEMORY_SHARE * sizes.get(name, 0.0):
            return False
    return True


def can_suspend(found: Capabilities) -> bool:
    """Whether a suspended job gives its GPUs back: virtual ones at once, real ones only by the driver's help."""
    return found.suspend != "none" and (found.gpu != "nvml" or found.gpu_suspend != "none")
