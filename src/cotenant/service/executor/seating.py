"""Starting jobs on the very GPUs that the policy named, on the terms that it agreed with them.

Terms reach the job through its runtime: smaller sub-batches from its start, a pause after every step where it may use
only a part of its GPUs' time. Turns are kept by suspending whoever has had a quantum (or, where the backend cannot, by
stopping it if it saves its work; else it keeps its GPUs). A job without the runtime runs at full speed: it cannot be
held back, only suspended or stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cotenant.backends.base import Backend, LaunchSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import ALONE
from cotenant.journal import Entry, Journal
from cotenant.service.executor.launching import Launcher
from cotenant.service.executor.seats import Seating, out_of_turn, who_sits_down, whose_turn_is_over
from cotenant.service.options import Options
from cotenant.service.planner.live import Promise
from cotenant.service.planner.sharing import cells
from cotenant.service.store.job import LiveJob

_LONGEST_PAUSE_S = 60.0
_SAME = 0.1  # pauses that differ by less than this part are not told anew


class Seater(Launcher):
    """Launches by name of GPU where the policy names them; by number of GPUs elsewhere."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self._pauses_s: dict[str, float] = {}  # by key of the attempt: what it was told last
        self._adopted = {job.key for job in (*self.book.on_gpus.values(), *self.book.suspended.values())}
        # ^ attempts that an earlier service may have told to pause, and this one has told nothing yet

    def _launch_all(self, starts: Sequence[Promise]) -> None:
        if self._memory is None or not self._memory.traits.names_gpus:
            super()._launch_all(starts)
            if self._pauses_s or self._adopted:
                self._tell_terms()
            return
        barred_before, self._barred_s = self._barred_s, {}
        todo = [
            job
            for job_id, slices in starts
            if job_id in self._places
            and (job := self.book.active.get(job_id)) is not None
            and self._startable(job)
            and self._right_size(job, slices)
        ]
        room_gib = {node.name: node.gpu_mem_gib for node in self.backend.nodes()}
        plan = Seating(self._places, self._terms, self._need_gib, room_gib)
        usable = {n.name for n in self.backend.nodes() if n.state == "up" and n.name not in self.book.drained}
        todo = [job for job in todo if all(name in usable for name, _ in self._places[job.id])]
        self._stay_at_home([job for job in todo if job.attempts and all(name in usable for name, _ in job.last.gpus)])
        bound = {job.id for job in self.book.on_gpus.values() if plan.of(job).turn and not self._can_wait(job)}
        for job in out_of_turn(self.book.on_gpus.values(), bound, plan):
            self._wait_for_turn(job)
        seated, barred = who_sits_down(todo, self.book.on_gpus.values(), plan, bound)
        self._barred_s = {job.id: barred_before.get(job.id, self.clock()) for job in barred}
        self._sit_down(seated)
        self._move_barred()
        waiting = [job for job in todo if job not in seated]
        on_gpus = list(self.book.on_gpus.values())
        assert self._memory is not None
        for job in whose_turn_is_over(on_gpus, waiting, plan, self.clock(), self._memory.traits.quantum_s):
            if self._can_wait(job):  # as things are now: of those before it in this loop some may stand still already
                self._wait_for_turn(job)
        self._tell_terms()

    def _stay_at_home(self, todo: Sequence[LiveJob]) -> None:
        """Suspended jobs that are to have GPUs of their own go on where they are, if nobody has or is to have these.

        Policies do not know where such a job is; to begin anew elsewhere would throw its work away.
        """
        wanted = Counter(cell for gpus in self._places.values() for cell in cells(gpus))
        used = {cell for job in self.book.on_gpus.values() for cell in cells(job.last.gpus)}
        for job in todo:
            place = self._places[job.id]
            mine, home = cells(place), cells(job.last.gpus) if job.state == JobState.SUSPENDED else set()
            if len(home) != len(mine) or any(wanted[cell] > 1 for cell in mine):
                continue
            types = {self._types.get(node) for node, _ in (*place, *job.last.gpus)}
            if home != mine and len(types) == 1 and not any(cell in used or wanted[cell] for cell in home - mine):
                self._places[job.id] = job.last.gpus
                wanted.subtract(mine)
                wanted.update(home)

    def _can_wait(self, job: LiveJob) -> bool:
        """Whether it can make room without losing its work: one that would begin anew at each turn would never end."""
        report = self.reports.of(job.id)
        return (report is not None and report.saves) or self._can_stand_still(job)

    def _wait_for_turn(self, job: LiveJob) -> None:
        self._promised[job.id] = tuple((name, len(indexes)) for name, indexes in job.last.gpus)
        self._ask_to_stop(job, "turn")

    def _sit_down(self, seated: Sequence[LiveJob]) -> None:
        intents = []
        for job in seated:
            if job.state == JobState.SUSPENDED:
                intents.append(Entry("continue", job.id))
            else:
                data = {"gpus": self._places[job.id]}
                level = self._terms.get(job.id, ALONE).level
                intents.append(Entry("launch", job.id, data | ({"level": level} if level else {})))
        new = [job for job in seated if job.state != JobState.SUSPENDED]
        if intents:
            self.write(intents)
        for job in new:
            self._cut_batch(job)
            self._launch(job)

    def _launch_spec(self, job: LiveJob) -> LaunchSpec:
        """A job with smaller sub-batches needs, and may use, less of its GPUs' memory."""
        spec = super()._launch_spec(job)
        return replace(spec, gpu_mem_gib=self._need_gib[job.id]) if self._need_gib.get(job.id) else spec

    def _cut_batch(self, job: LiveJob) -> None:
        """Its share of a batch in 2**level parts, whose gradients it adds up."""
        level = job.last.level
        if level and job.spec.batch_size:
            self.reports.batch(job.id, max(job.spec.batch_size >> level, 1), 2**level)

    def _tell_terms(self) -> None:
        """Have jobs pause after each step so that they use no more than their share of the time."""
        for job in self.book.on_gpus.values():
            terms = self._terms.get(job.id, ALONE)
            report = self.reports.of(job.id)
            if job.state != JobState.RUNNING or report is None or not report.step_time_s:
                continue
            pause_s = 0.0
            if terms.turn == 0 and terms.share < 1:  # none at all: the longest pause after every step
                share = max(terms.share, 1e-9)
                pause_s = min(report.step_time_s * (1 / share - 1), _LONGEST_PAUSE_S)
            before_s, unknown = self._pauses_s.get(job.key, 0.0), job.key in self._adopted and not self.shares_hosts
            if unknown or abs(pause_s - before_s) > _SAME * max(before_s, pause_s):
                self._pauses_s[job.key] = pause_s
                self._adopted.discard(job.key)
                self.reports.pace(job.id, pause_s)
        alive = {job.key for job in self.book.on_gpus.values()} | {job.key for job in self.book.suspended.values()}
        self._pauses_s = {key: pause_s for key, pause_s in self._pauses_s.items() if key in alive}
        self._adopted &= alive
