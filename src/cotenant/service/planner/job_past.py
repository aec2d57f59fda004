"""What a job has done before it got its row in the tables: in earlier attempts, or before the service was restarted."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.lifecycle import JobState
from cotenant.engine.live_rows import LiveRows
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.memory import PROMOTED
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob


def write_past(
    tables: LiveRows, row: int, job: LiveJob, book: Book, beliefs: LiveBeliefs, types: dict[str, str], now_s: float
) -> None:
    """Time and work of a job so far into its new row."""
    f, i = tables.state.f[row], tables.state.i[row]
    forgiven_s = float(book.memory.get(PROMOTED, {}).get(job.id, 0.0))
    ran_s = sum(one.ran_s for one in job.attempts)
    since_s = job.last.since_s if job.attempts else None
    held_s = ran_s + (max(now_s - since_s, 0.0) if since_s is not None else 0.0)
    done_s = 0.0
    for one in job.attempts:
        worked_s = one.active_s(now_s) - one.lost_s - beliefs.come_s(job, one)
        done_s += max(worked_s, 0.0) * beliefs.pace(job, one, types)
    f[col.LOST] = job.spec.gpus * sum(one.lost_s for one in job.attempts)
    f[col.OCCUPIED], f[col.ATTAINED] = held_s, max(held_s - forgiven_s, 0.0)
    f[col.DONE] = f[col.SAVED] = done_s
    f[col.FIRST] = np.nan if job.started_s is None else job.started_s
    f[col.WAITED] = max(now_s - job.submitted_s - held_s, 0.0)
    if job.state == JobState.SUSPENDED:
        f[col.SAVED] = max(f[col.DONE] - job.last.unsaved_s, 0.0)
    i[col.OWES], i[col.LEVEL] = int(f[col.DONE] > 0), job.last.level if job.attempts else 0
    i[col.SLICED], i[col.COLUMN] = job.last.slice if job.attempts else (0, 0)
