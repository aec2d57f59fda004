"""How long a live job takes to come and to go: as measured of its kind or of others that run the same, else as the
profile says, else as measured on such GPUs, else a guess."""

from __future__ import annotations

import math
from dataclasses import replace

from cotenant.beliefs.host_pace import OWN_SPREAD, HostPace, host_pace
from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles
from cotenant.service.store.book import Book
from cotenant.service.store.job import ASK, SUSPEND, LiveJob
from cotenant.service.store.learned import (
    EXIT,
    RESTORE,
    RESUME,
    SAVE,
    START,
    SUSPENDING,
    Key,
    is_python,
    kind_key,
    phase_keys,
    what_runs,
)
from cotenant.workload.profiles.lifecycle import LifecycleRow

GUESSED = LifecycleRow(start_s=10.0, save_s=2.0, restore_s=2.0, suspend_s=4.0, resume_s=3.0, exit_s=1.0)
"""Of a Python program that nobody has measured: it imports libraries and builds a model before its first step."""
_OTHERS = LifecycleRow(start_s=0.0, save_s=2.0, restore_s=2.0, suspend_s=4.0, resume_s=3.0, exit_s=0.0)
GUESSED_SPREAD = 0.3  # of a start-up of which nothing was measured (its logarithm)
_WHAT = {
    "start_s": START, "save_s": SAVE, "restore_s": RESTORE, "suspend_s": SUSPENDING, "resume_s": RESUME, "exit_s": EXIT,
}  # fmt: skip


class Phases:
    """One row per kind of job, worked out anew when more has been measured."""

    def __init__(self, book: Book, profiles: LiveProfiles) -> None:
        self._book, self._profiles = book, profiles
        self._known: dict[tuple[object, ...], LifecycleRow] = {}
        self._wide: dict[tuple[object, ...], LifecycleRow] = {}  # as far as it does not matter who sent the job
        self._learned, self._version = book.learned, -1
        self._last: tuple[object, int, LifecycleRow] = (None, -1, GUESSED)  # who asks, asks several times

    def of(self, job: LiveJob) -> LifecycleRow:
        """Seconds of each phase; none is NaN."""
        learned = self._book.learned
        if self._learned is not learned or self._version != learned.version:
            self._known, self._wide, self._learned, self._version = {}, {}, learned, learned.version
        elif self._last[0] is job and self._last[1] == self._book.seq:
            return self._last[2]
        spec, gpu_type, runs = job.spec, self._type(job), what_runs(job)
        key = (runs, job.tenant, job.user, spec.gpus, gpu_type, is_python(spec.run))
        found = self._known.get(key)
        if found is None:
            wide = (runs, spec.model, spec.gpus, gpu_type, is_python(spec.run))
            if wide not in self._wide:
                self._wide[wide] = self._row(job, gpu_type)
            found = self._known[key] = self._own(job, gpu_type, self._wide[wide])
        self._last = job, self._book.seq, found
        return found

    def host_pace(self) -> HostPace:
        """How fast hosts are now against when the profile was made, by the models that have started here since."""
        found: dict[str, float] = {}
        for kind in self._profiles.kinds:
            model = kind.kind[0]
            seen = self._book.learned.of(START, (("runs", model),)) if model else None
            told_s = self._profiles.lifecycle_of(kind).start_s
            if seen is not None and told_s > 0:
                found[model] = seen.mean - math.log(told_s)
        return host_pace(found.values())

    def start_doubt(self, job: LiveJob, pace: HostPace) -> tuple[float, float]:
        """Of a start-up: by how much it is off as believed, since it is a profile's, and the doubt (logarithms)."""
        kind, runs, _ = phase_keys(job, self._type(job))
        if self._book.learned.of(START, (kind, runs)) is not None:
            return 0.0, OWN_SPREAD
        told_s = self._profiles.lifecycle_of(LiveKind((job.spec.model, job.spec.gpus))).start_s
        return (pace.shift, OWN_SPREAD) if math.isfinite(told_s) else (0.0, GUESSED_SPREAD)

    def _type(self, job: LiveJob) -> str:
        """The GPU type that it has, asks for, or will have since there is no other."""
        types = self._profiles.types
        given = (job.last.gpu_type if job.attempts else "") or job.spec.gpu_type
        return given or (types[0] if len(types) == 1 else "")

    def _own(self, job: LiveJob, gpu_type: str, wide: LifecycleRow) -> LifecycleRow:
        """What was measured of its very kind goes before what is known of others."""
        kind, of = (kind_key(job, gpu_type),), self._book.learned.of
        own = {name: math.exp(tally.mean) for name, what in _WHAT.items() if (tally := of(what, kind)) is not None}
        return replace(wide, **own) if own else wide

    def _row(self, job: LiveJob, gpu_type: str) -> LifecycleRow:
        """What is known of jobs that run the same, whoever sent them."""
        spec = job.spec
        profiled = self._profiles.lifecycle_of(LiveKind((spec.model, spec.gpus)))
        _, runs, machine = phase_keys(job, gpu_type)
        told = runs, machine, is_python(spec.run), profiled
        return LifecycleRow(**{name: self._phase(name, *told) for name in _WHAT})

    def _phase(self, name: str, runs: Key, machine: Key, python: bool, profiled: LifecycleRow) -> float:
        what, learned = _WHAT[name], self._book.learned
        same = learned.of(what, (runs,))
        if same is not None:
            return math.exp(same.mean)
        told_s = float(getattr(profiled, name))
        if math.isfinite(told_s):
            return told_s
        like = learned.of(what, (machine,)) if python or name not in ("start_s", "exit_s") else None
        if like is not None:
            return math.exp(like.mean)
        before_s = self._before(name)
        return float(getattr(GUESSED if python else _OTHERS, name)) if before_s is None else before_s

    def _before(self, name: str) -> float | None:
        """As a journal of before has it, which knew only the means of all jobs."""
        asked, still = self._book.costs.of(ASK), self._book.costs.of(SUSPEND)
        sums = {
            "save_s": (asked.free_s, asked.taken), "restore_s": (asked.resume_s, asked.resumed),
            "suspend_s": (still.free_s, still.taken), "resume_s": (still.resume_s, still.resumed),
        }  # fmt: skip
        total_s, count = sums.get(name, (0.0, 0))
        return total_s / count if count else None
