"""Starting what was decided, on GPUs that are really free."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Sequence

from cotenant.backends.base import Backend, BackendError, LaunchSpec
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry, Journal
from cotenant.service.deciding import Decider
from cotenant.service.livejob import Gpus, LiveJob
from cotenant.service.options import Options
from cotenant.service.sharing import may_join

_AT_ONCE_S = 2.0  # within a tick or two
Start = tuple[LiveJob, tuple[tuple[str, int], ...]]


class Launcher(Decider):
    """Journals launches, then performs them."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self._barred_s: dict[str, float] = {}  # suspended jobs that could start now, but not where they are: since when

    def _launch_all(self, starts: Sequence[tuple[str, tuple[tuple[str, int], ...]]]) -> None:
        """Start jobs on GPUs that are really free; others wait for their victims to end.

        The plan says how many GPUs of which node; which ones is chosen here. Suspended jobs choose first, for they
        can go on only where they are, and others keep off such GPUs where they can.
        """
        barred_before, self._barred_s = self._barred_s, {}
        todo = [
            (job, slices)
            for job_id, slices in starts
            if (job := self.book.active.get(job_id)) is not None
            and self._startable(job)
            and self._right_size(job, slices)
        ]
        if not todo:
            return
        free = self._free_gpus()
        guests = [job for job, _ in todo if self._beside.get(job.id) in self.book.active]
        todo = [(job, slices) for job, slices in todo if job not in guests]
        stay, elsewhere = _at_home(todo, free)
        chosen, left = _choose([start for start in todo if start[0].state == JobState.PENDING], free)
        wanted = {node for _, slices in left for node, _ in slices}
        # Whoever had to leave just now does not come back against the plan: the policy would send him away again.
        # Nor does one that could start elsewhere ever since: it is ended soon, for good.
        late_s = self.clock() - self.grace_s
        tired = {
            job.id
            for job, _ in elsewhere
            if job.stop_asked_s > late_s or barred_before.get(job.id, math.inf) < job.stop_asked_s + _AT_ONCE_S
        }
        home = _stay_though_planned_elsewhere(elsewhere, free, wanted, tired)
        for job, slices in elsewhere:
            if job.id in home and _take(free, job.last.gpus):
                stay.append(job)
            elif all(len(free.get(node, ())) >= count for node, count in slices):
                self._barred_s[job.id] = barred_before.get(job.id, self.clock())
        intents = [Entry("launch", job.id, {"gpus": gpus}) for job, gpus in chosen]
        intents += [Entry("continue", job.id) for job in stay]
        if intents:
            self.write(intents)
        for job, _ in chosen:
            self._launch(job)
        for job in guests:
            self._join(job, barred_before)
        self._move_barred()

    def _join(self, job: LiveJob, barred_before: dict[str, float]) -> None:
        """Start a guest on the very GPUs of its host, once that is there and whoever has to leave has left."""
        host = self.book.on_gpus.get(self._beside[job.id])
        if host is None or not may_join(job, host, self.book.on_gpus.values(), self.backend.nodes()):
            return
        if job.state == JobState.PENDING:
            self.write([Entry("launch", job.id, {"gpus": host.last.gpus})])
            self._launch(job)
        elif job.last.gpus == host.last.gpus:
            self.write([Entry("continue", job.id)])
        else:
            self._barred_s[job.id] = barred_before.get(job.id, self.clock())

    def _move_barred(self) -> None:
        """End suspended jobs that could start now if they were not bound to GPUs that others have.

        Ending one throws its unsaved work away, letting it wait leaves idle what was planned for it. So it waits as
        long as it would lose (which is at most twice the better choice), but no longer than the grace period.
        """
        for job_id, since_s in self._barred_s.items():
            job = self.book.suspended[job_id]
            if self.clock() - since_s >= min(job.last.unsaved_s, self.grace_s):
                self.write([Entry("stop", job.id, {"why": "move"})])
                self._kill(job.key)

    def _launch(self, job: LiveJob) -> None:
        """The launch is journaled: do it."""
        try:
            spec = self._launch_spec(job)
            self.hook("before:launched")
            self.backend.launch(spec)
        except (InputError, BackendError, OSError) as error:
            self._exit(job, JobState.FAILED, f"it could not be started: {error}", {"failure": True})
            self._forget(job.key)
        self.hook("after:launched")

    def _free_gpus(self) -> dict[str, list[int]]:
        """Indexes of free GPUs per node that takes jobs; those on which suspended jobs wait come last."""
        used: dict[str, set[int]] = {}
        for job in self.book.on_gpus.values():
            for name, indexes in job.last.gpus:
                used.setdefault(name, set()).update(indexes)
        bound = Counter(
            (name, index) for job in self.book.suspended.values() for name, gpus in job.last.gpus for index in gpus
        )
        free = {
            node.name: [index for index in range(node.gpus) if index not in used.get(node.name, ())]
            for node in self.backend.nodes()
            if node.state == "up" and node.name not in self.book.drained
        }
        if bound:
            for node_name, numbers in free.items():
                numbers.sort(key=lambda number: bound[node_name, number])  # stable: the lowest first
        return free

    def _launch_spec(self, job: LiveJob) -> LaunchSpec:
        spec = job.spec
        folder = self.backend.checkpoint_dir(job.id, spec.checkpoint_dir)
        env = {**spec.env, **self.reports.environment(job, folder)}
        part = job.size / spec.gpus if spec.gpus else 1.0  # cores and memory go with the GPUs of an elastic job
        return LaunchSpec(
            key=job.key, job=job.id, workdir=spec.workdir, script=spec.run, setup=spec.setup, env=env,
            gpus=job.last.gpus, mem_gib=part * spec.mem_gib or None, gpu_mem_gib=spec.gpu_mem_gib or None,
            cpu_share=part * spec.cpus or None, grace_s=self.grace_s, calls_home=self.reports.calls_home(job),
        )  # fmt: skip


def _at_home(todo: Sequence[Start], free: dict[str, list[int]]) -> tuple[list[LiveJob], list[Start]]:
    """Suspended jobs that are planned for the nodes where they are, with their GPUs free; and the other suspended."""
    stay: list[LiveJob] = []
    elsewhere: list[Start] = []
    for job, slices in todo:
        if job.state != JobState.SUSPENDED:
            continue
        own = sorted((node, len(indexes)) for node, indexes in job.last.gpus)
        if own == sorted(slices) and _take(free, job.last.gpus):
            stay.append(job)
        else:
            elsewhere.append((job, slices))
    return stay, elsewhere


def _stay_though_planned_elsewhere(
    elsewhere: Sequence[Start], free: dict[str, list[int]], wanted: Container[str], barred: Container[str] = ()
) -> set[str]:
    """Suspended jobs that may go on where they are though the plan has them on other nodes, by id.

    Their GPUs are free, and whoever else is planned for these nodes does not come short: the policy would stop them
    for him again at once. Those of `barred` may not.
    """
    left = {node: set(indexes) for node, indexes in free.items()}
    home: list[LiveJob] = []
    for job, _ in elsewhere:
        mine = job.last.gpus
        if job.id in barred or any(node in wanted for node, _ in mine):
            continue
        if all(set(indexes) <= left.get(node, set()) for node, indexes in mine):
            home.append(job)
            for node, indexes in mine:
                left[node] -= set(indexes)
    while True:
        need = Counter[str]()
        for job, slices in elsewhere:
            need.update(dict(slices) if job not in home else {})
        short = [job for job in home if any(need[node] > len(left[node]) for node, _ in job.last.gpus)]
        if not short:
            return {job.id for job in home}
        home.remove(short[-1])
        for node, indexes in short[-1].last.gpus:
            left[node] |= set(indexes)


def _choose(todo: Sequence[Start], free: dict[str, list[int]]) -> tuple[list[tuple[LiveJob, Gpus]], list[Start]]:
    """GPUs for new attempts, taken from the free ones; and who has to wait for more of them."""
    chosen: list[tuple[LiveJob, Gpus]] = []
    left: list[Start] = []
    for job, slices in todo:
        gpus = tuple((node, tuple(sorted(free.get(node, ())[:count]))) for node, count in slices)
        if all(len(indexes) == count for (_, indexes), (_, count) in zip(gpus, slices, strict=True)):
            _take(free, gpus)
            chosen.append((job, gpus))
        else:
            left.append((job, slices))
    return chosen, left


def _take(free: dict[str, list[int]], gpus: Gpus) -> bool:
    """Take these very GPUs, if all are free."""
    if any(not set(indexes) <= set(free.get(node, ())) for node, indexes in gpus):
        return False
    for node, indexes in gpus:
        free[node] = [index for index in free[node] if index not in indexes]
    return True
