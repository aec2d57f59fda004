"""Starting what was decided, on GPUs that are really free."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.backends.base import BackendError, LaunchSpec
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.book import Gpus, LiveJob
from cotenant.service.deciding import Decider


class Launcher(Decider):
    """Journals launches, then performs them."""

    def _launch_all(self, starts: Sequence[tuple[str, tuple[tuple[str, int], ...]]]) -> None:
        """Start jobs on GPUs that are really free; others wait for their victims to end."""
        if not starts:
            return
        free = self._free_gpus()
        chosen: list[tuple[LiveJob, Gpus]] = []
        for job_id, slices in starts:
            job = self.book.active.get(job_id)
            if job is None or not self._startable(job):
                continue
            if all(len(free.get(node, ())) >= count for node, count in slices):
                chosen.append((job, tuple((node, tuple(free[node][:count])) for node, count in slices)))
                for node, count in slices:
                    free[node] = free[node][count:]
        if not chosen:
            return
        self.write([Entry("launch", job.id, {"gpus": gpus}) for job, gpus in chosen])
        for job, _ in chosen:
            self._launch(job)

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
        """Indexes of free GPUs per node that takes jobs."""
        used: dict[str, set[int]] = {}
        for job in self.book.on_gpus.values():
            for name, indexes in job.last.gpus:
                used.setdefault(name, set()).update(indexes)
        return {
            node.name: [index for index in range(node.gpus) if index not in used.get(node.name, ())]
            for node in self.backend.nodes()
            if node.state == "up" and node.name not in self.book.drained
        }

    def _launch_spec(self, job: LiveJob) -> LaunchSpec:
        spec = job.spec
        workdir = spec.workdir or str(self.home)
        env = {**spec.env, **self.reports.environment(job, self.home)}
        return LaunchSpec(
            key=job.key, job=job.id, workdir=workdir, script=spec.run, setup=spec.setup, env=env, gpus=job.last.gpus,
            mem_gib=spec.mem_gib or None, cpu_share=spec.cpus or None, grace_s=self.grace_s,
        )  # fmt: skip
