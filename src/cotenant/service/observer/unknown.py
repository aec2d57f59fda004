"""Jobs that run though the journal does not know them: another journal, or an older state of this one, started them.

Nobody ends them in silence. The service refuses to start until its operator says whether to adopt or to end them. A
home remembers by a number which journal it belongs to, for in another one the same ids mean other jobs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cotenant.backends.base import Backend, LaunchSpec, Observed, Recalls
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec
from cotenant.journal import Entry
from cotenant.service.store.book import Book

WAYS = ("adopt", "end")
_NAMED = 5


class UnknownJobs(InputError):
    """Something runs, or has ended, of which the journal knows nothing."""


class Lineage:
    """The number of the journal with which a home was served last, in a file at home."""

    def __init__(self, home: Path) -> None:
        self._path = home / "journal.id"

    def differs(self, book: Book) -> bool:
        """Whether this home belongs to another journal."""
        known = self._read()
        return bool(known) and known != book.lineage

    def keep(self, book: Book) -> None:
        """From now on it belongs to this one."""
        if self._read() != book.lineage:
            self._path.write_text(book.lineage + "\n", encoding="ascii")

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


def is_known(book: Book, item: Observed) -> bool:
    """Whether the journal has launched this very attempt."""
    name, _, number = item.key.rpartition("-")
    job = book.jobs.get(name)
    return job is not None and number.isdecimal() and int(number) <= len(job.attempts)


def refusal(items: Sequence[Observed]) -> UnknownJobs:
    """What the operator is told."""
    alive = sum(item.state not in ("exited", "lost") or item.alive for item in items)
    keys = ", ".join(item.key for item in items[:_NAMED]) + (", ..." if len(items) > _NAMED else "")
    return UnknownJobs(
        f"there are {len(items)} jobs here that the journal does not know, {alive} of them running ({keys}): is it the"
        " wrong journal, or an older one? Nothing was touched. Give the right --db or `cotenant restore` a backup; or"
        " start once with --unknown-jobs adopt (they become jobs of this journal) or end (they are killed)"
    )


def adopted(book: Book, backend: Backend, items: Iterable[Observed]) -> list[Entry]:
    """What to journal so that these attempts are the journal's own; `UnknownJobs` where that cannot be."""
    entries: list[Entry] = []
    for item in items:
        spec = backend.launched(item.key) if isinstance(backend, Recalls) else None
        name, _, number = item.key.rpartition("-")
        job = book.jobs.get(name)
        if spec is None or not number.isdecimal():
            raise UnknownJobs(f"job {item.key} cannot be adopted: nobody knows what was started; --unknown-jobs end")
        if job is not None and (job.finished or len(job.attempts) >= int(number)):
            raise UnknownJobs(
                f"job {item.key} cannot be adopted: the journal has another job {name}; give the right --db, or"
                " --unknown-jobs end"
            )
        entries += _entries(name, int(number), spec, book)
    return entries


def _entries(name: str, number: int, spec: LaunchSpec, book: Book) -> Iterator[Entry]:
    """The story of a job up to its present attempt, as far as it has to be told."""
    job = book.jobs.get(name)
    undone = {"to": "pending", "why": "the journal has lost how it ended"}
    if job is None:
        asked = _job_spec(spec)
        yield Entry("submit", name, {"spec": asked.as_dict(), "tenant": asked.tenant, "user": "adopted"})
    elif name in book.on_gpus or name in book.suspended:
        yield Entry("exit", name, undone)
    done = 0 if job is None else len(job.attempts)
    for attempt in range(done + 1, number + 1):
        yield Entry("launch", name, {"gpus": spec.gpus})
        if attempt < number:
            yield Entry("exit", name, undone)


def _job_spec(spec: LaunchSpec) -> JobSpec:
    """What must have been asked for, as far as a launch tells."""
    env = {name: value for name, value in spec.env.items() if not name.startswith("COTENANT_")}
    return JobSpec(
        run=spec.script or shlex.join(spec.argv or ()), name="adopted", setup=spec.setup, workdir=spec.workdir, env=env,
        gpus=sum(len(indexes) for _, indexes in spec.gpus), cpus=spec.cpu_share or 0.0, mem_gib=spec.mem_gib or 0.0,
        gpu_mem_gib=spec.gpu_mem_gib or 0.0, tenant=spec.env.get("COTENANT_TENANT") or "default",
    )  # fmt: skip
