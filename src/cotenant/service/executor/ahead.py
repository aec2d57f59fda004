"""Processes that are started ahead of their GPUs: what to journal of them, and whether one is what is to run."""

from __future__ import annotations

from collections.abc import Collection

from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.planner.decision import Act, LiveDecision
from cotenant.service.store.book import Book
from cotenant.service.store.job import WITHDRAW, LiveJob


def fits(job: LiveJob, act: Act) -> bool:
    """Whether a job can start now: without a process, or with one that waits for exactly these GPUs."""
    return not job.holds or (job.last.gpus == act.gpus and not act.terms.level)


def intents(book: Book, decision: LiveDecision, starts: Collection[str]) -> list[Entry]:
    """Whom to start ahead, and whose process to end since it waits in vain; those in `starts` have their GPUs now."""
    meant = {act.job for act in decision.acts if act.kind == "start"}  # on other GPUs, where it is not in `starts`
    wanted = decision.ahead
    ends = [
        Entry("stop", name, {"why": WITHDRAW})
        for name, job in book.ahead.items()
        if not job.stop_why and name not in starts and (name in meant or not (wanted is None or name in wanted))
    ]
    new = (name for name in wanted or {} if name not in book.ahead and name not in meant)
    waiting = (job for name in new if (job := book.active.get(name)) is not None)
    return ends + [
        Entry("ahead", job.id, {"gpus": wanted[job.id].gpus, "place": wanted[job.id].place})
        for job in waiting
        if wanted and job.state == JobState.PENDING and not (job.held or job.stop_why)
    ]
