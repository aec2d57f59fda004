"""What policies may know of live jobs and of the cluster beside the tables, gathered from the book and from reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cotenant.backends.base import NodeInfo
from cotenant.beliefs.slices import SliceSpeeds
from cotenant.beliefs.training import Trainings
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.deadlines import Steps, strict_steps
from cotenant.core.lifecycle import JobState
from cotenant.core.partitions import Slicing, speeds
from cotenant.core.state import State
from cotenant.core.together import Together
from cotenant.core.view import Facts
from cotenant.core.workload import Codes
from cotenant.engine.live_rows import LiveRows
from cotenant.engine.partitions import table_of_nodes, tables_of
from cotenant.engine.rates import RateModel
from cotenant.service.observer.reports import Reports
from cotenant.service.store.book import Book

_SERVICES = 2000  # finished jobs from which a policy learns at most


@dataclass(frozen=True, slots=True)
class Names:
    """Who is who, for explanations."""

    tables: LiveRows
    job_id: Mapping[int, str]

    def tenant_of(self, row: int) -> str:
        """The tenant of a job."""
        return self.tables.tenants[int(self.tables.state.i[row, col.TENANT])]

    def asks(self, row: int) -> str:
        """What a job asks for, in words."""
        state = self.tables.state
        nodes = int(state.cls[state.i[row, col.CLASS], col.C_NODES])
        return f"{int(state.i[row, col.GPUS])} GPUs" + (f" on {nodes} nodes, equally many on each" if nodes else "")


def deadline_steps(tables: LiveRows, row_of: Mapping[str, int], book: Book) -> Steps | None:
    """Deadlines as steps; None where all are strict."""
    rows = len(tables)
    soft = {row: job for name, row in row_of.items() if (job := book.active.get(name)) and job.spec.deadline_steps}
    if not soft:
        return None
    strict = strict_steps(tables.state.f[:rows, col.DEADLINE])
    width = max(len(job.spec.deadline_steps) for job in soft.values())
    time_s, value = np.full((rows, width), np.nan), np.zeros((rows, width))
    time_s[:, :1], value[:, :1] = strict.time_s, strict.value
    for row, job in soft.items():
        for at, (after_s, worth) in enumerate(job.spec.deadline_steps):
            time_s[row, at], value[row, at] = job.submitted_s + after_s, worth
    return Steps(time_s, value)


def with_training(
    facts: Facts, tables: LiveRows, row_of: Mapping[str, int], book: Book, reports: Reports, trainings: Trainings
) -> Facts:
    """What elastic jobs have told. One that runs but cannot save keeps its size, or it would lose all its work."""
    jobs = {name: job for name in row_of if (job := book.active.get(name)) is not None and job.elastic}
    if not jobs:
        return facts
    rows = len(tables)
    said = {name: report for name in jobs if (report := reports.of(name)) is not None}
    names, may = [""] * rows, np.zeros(rows, bool)
    sizes = np.zeros((rows, 2), np.int64)
    for name, job in jobs.items():
        row = row_of[name]
        names[row], sizes[row] = name, (job.spec.min_gpus, job.spec.max_gpus)
        may[row] = job.state == JobState.PENDING or (name in said and said[name].saves)
        if job.state == JobState.RUNNING:
            trainings.look(job, said.get(name))
    gpus = int(tables.state.node[:, col.NODE_CAP].sum())
    training = trainings.table(names, jobs, said, gpus, book.preemption_cost_s(10.0))
    return replace(facts, elastic=may, training=training, sizes=sizes)


def movable_rows(tables: LiveRows, row_of: Mapping[str, int], book: Book) -> NDArray[np.bool_] | None:
    """Who may go on elsewhere: jobs that can save, unless they said no; None where that is everybody."""
    yields, jobs = tables.state.i[:, col.YIELDS], [job for job in book.on_gpus.values() if job.id in row_of]
    fixed = [row_of[job.id] for job in jobs if not (job.spec.movable and yields[row_of[job.id]] & 2)]
    if not fixed:
        return None
    found = np.ones(len(tables), bool)
    found[fixed] = False
    return found


def slicing_of(
    cluster: Cluster, together: Together, tables: LiveRows, row_of: Mapping[str, int], book: Book
) -> Slicing | None:
    """How GPUs may be cut and what jobs ask for; None where no node says so.

    Only slices that are shares of the time can change under a job that runs: others would end it.
    """
    known = tables_of(cluster)
    if not known:
        return None
    asked = [""] * len(tables)
    for name, row in row_of.items():
        asked[row] = book.jobs[name].spec.slice if name in book.jobs else ""
    fixed = not all(table.timed for table in known)
    return Slicing(known, table_of_nodes(cluster), speeds(known, together.busy), Codes.of(asked), fixed)


def with_slices(facts: Facts, cut: Slicing | None, rates: RateModel) -> tuple[Facts, RateModel]:
    """What is known, and how fast jobs go, where GPUs may be cut."""
    return (facts, rates) if cut is None else (replace(facts, slicing=cut), SliceSpeeds(cut, pauses=False))


def are_news(facts: Facts, last: Facts) -> bool:
    """Whether a policy has to think anew about what it made of other ones."""
    same = facts.together is last.together and facts.pair is last.pair and facts.pool_types == last.pool_types
    changes = (facts.steps, facts.stages, facts.training, facts.bonds, last.steps, last.stages, last.training)
    moves = (facts.movable is None) == (last.movable is None) and (
        facts.movable is None or np.array_equal(facts.movable, np.asarray(last.movable))
    )
    return not same or not moves or not _cut_alike(facts, last) or any(part is not None for part in changes)


def _cut_alike(facts: Facts, last: Facts) -> bool:
    if facts.slicing is None or last.slicing is None:
        return facts.slicing is last.slicing
    now, then = facts.slicing.asked, last.slicing.asked
    return now.names == then.names and np.array_equal(now.code, then.code)


def memory_by_type(nodes: Iterable[NodeInfo]) -> dict[str, float]:
    """GiB of the smallest GPU of each type."""
    found: dict[str, float] = {}
    for node in nodes:
        found[node.gpu_type] = min(node.gpu_mem_gib, found.get(node.gpu_type, node.gpu_mem_gib))
    return found


def granted_gib(state: State, together: Together | None, row: int) -> float:
    """GiB per GPU that a job may use: what it needs on its terms, or is granted where memory gives."""
    if together is None or together.soft is None:
        return float(state.f[row, col.GPU_GIB])
    return float(together.memory_gib[state.i[row, col.SPEED_ROW], state.i[row, col.LEVEL]] * state.f[row, col.CAP])


def services_of(book: Book) -> np.ndarray:
    """GPU-seconds of jobs that have ended; an hour where none has."""
    ended = [job for job in book.jobs.values() if job.finished and job.attempts][-_SERVICES:]
    services = [job.spec.gpus * sum(one.ran_s for one in job.attempts) for job in ended]
    return np.array([value for value in services if value > 0] or [3600.0])
