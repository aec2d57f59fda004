"""What `why` says of a job that waits because of tenants, with the names of those concerned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from cotenant.core.lifecycle import JobState
from cotenant.core.reasons import Cause, Reason
from cotenant.service.facade import Caller
from cotenant.service.store.job import STOP, LiveJob, cells
from cotenant.service.store.view import BookView
from cotenant.tenancy.words import over_quota, within_guarantee

Lenders = Callable[[str], Mapping[str, int]]
_NAMED = 3  # jobs that leave


def explained(reason: Reason, view: BookView, caller: Caller, now_s: float, grace_s: float, lenders: Lenders) -> Reason:
    """The engine's reason in words that name tenants, where it is about them; jobs are named to who may see them."""
    facts, told = reason.tenant, (caller, now_s, grace_s)
    if facts is None:
        going = _going(reason.job, view)
        return replace(reason, text=_taken_back(view.jobs[reason.job].tenant, going, *told)) if going else reason
    if reason.cause not in (Cause.OVER_QUOTA, Cause.CAPACITY, Cause.FRAGMENTED, Cause.BEHIND_HEAD):
        return reason
    if facts.reclaiming:
        return replace(reason, cause=Cause.CAPACITY, text=_taken_back(facts.tenant, (), *told, facts.next_s))
    borrows = facts.used + facts.need > facts.guaranteed
    if borrows and facts.reserved_for not in ("", reason.job):
        return replace(reason, cause=Cause.RESERVED, text=_reserved(facts.reserved_for, view, caller, now_s))
    if facts.used + facts.need <= facts.limit:
        return reason
    line = f"; it is number {reason.position} of {reason.waiting} waiting" if reason.position else ""
    if borrows:
        return replace(reason, cause=Cause.OVER_QUOTA, text=over_quota(facts, lenders(facts.tenant)) + line)
    return replace(reason, cause=Cause.CAPACITY, text=within_guarantee(facts) + line)


def _going(name: str, view: BookView) -> list[LiveJob]:
    """Jobs of other tenants that are leaving the GPUs which a job is promised: that is done for a guarantee only."""
    mine = set(cells(view.promises.get(name, ())))
    if not mine or view.tenants.tree is None:
        return []
    return [
        job
        for job in view.on_gpus.values()
        if job.state == JobState.STOPPING
        and job.tenant != view.jobs[name].tenant
        and not mine.isdisjoint(cells(job.last.gpus))
    ]


def _taken_back(
    tenant: str, going: Sequence[LiveJob], caller: Caller, now_s: float, grace_s: float, next_s: float = inf
) -> str:
    parts = [
        f"{job.size} GPU{'s' * (job.size != 1)} of {_named(job, caller)} {_in(_leaves_s(job, grace_s) - now_s)}"
        for job in sorted(going, key=lambda job: job.stop_asked_s)
    ]
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"those of {len(parts) - _NAMED} more jobs"]
    if not parts and next_s < inf:
        parts = [f"who has borrowed it may stay a little, and is asked to leave {_in(next_s - now_s)}"]
    return f"{tenant}'s guarantee is being taken back: {', '.join(parts) or 'borrowed GPUs are being left'}"


def _leaves_s(job: LiveJob, grace_s: float) -> float:
    """When a job that was asked to leave has done so, if its present rung of the ladder is the last that it needs."""
    return (job.rung_s if job.rung == STOP else job.stop_asked_s) + grace_s


def _reserved(name: str, view: BookView, caller: Caller, now_s: float) -> str:
    job = view.jobs.get(name)
    whose = _named(job, caller) if job is not None else "another job"
    waited = f" that has waited {max(now_s - job.since_s, 0.0):.0f} s" if job is not None else ""
    return f"held back by a reservation for {whose}{waited}"


def _named(job: LiveJob, caller: Caller) -> str:
    return f"job {job.id}" if caller.sees(job.tenant) else f"a job of {job.tenant}"


def _in(seconds: float) -> str:
    return f"in about {seconds:.0f} s" if seconds >= 1.0 else "at any moment"
