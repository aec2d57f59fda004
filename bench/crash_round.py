"""One round of `bench.crash`: jobs on one home from the first to the last, and the count of what is left afterwards."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.crash_jobs import AHEAD, ENDS, LINES, LOOKER, MODELS, PRELUDE, STEPS, TRAIN, End, Step, most_on_gpu, workload
from bench.crash_known import Words
from bench.crash_service import Service, isolation
from cotenant.backends.local import LocalBackend
from cotenant.backends.local.isolation.levels import FIRST_UID
from cotenant.backends.local.logs import LocalLog
from cotenant.core.lifecycle import FINAL
from cotenant.journal import open_journal, recover
from cotenant.service.desk.views import node_statuses
from cotenant.service.store.book import Book
from cotenant.testing.apart import reachable_python

LIMIT_S = 60.0  # in which a service that nobody kills must have done all that is left
NO_END = "no end"


@dataclass
class Tally:
    """What is counted; all but the first line must stay 0."""

    points: int = 0
    rounds: int = 0
    jobs: int = 0
    attempts: int = 0
    restarts: int = 0
    preemptions: int = 0
    suspensions: int = 0
    turns: int = 0
    resizes: int = 0
    shared: int = 0
    promises: int = 0
    memories: int = 0
    ahead: int = 0
    in_vain: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def fault(self, kind: str, note: str) -> None:
        """Count one, and say which."""
        self.faults[kind] += 1
        self.notes.append(f"{kind}: {note}")


FAULTS = (
    *("lost", "doubled", "GPUs shared", "leaked processes", "leaked records", "leaked GPUs"),
    *("wrong states", "torn logs", "forgotten", "complaints"),
)


class Round:
    """One home from its first job to its last."""

    def __init__(self, folder: Path, options: argparse.Namespace, number: int, tally: Tally) -> None:
        self.home, self.trail = folder / "home", folder / "trail"
        self.trail.mkdir(parents=True)
        (self.trail / "prelude").write_text(PRELUDE)
        (self.trail / "train.py").write_text(TRAIN)
        (self.trail / "ahead.py").write_text(AHEAD)
        self.options, self.number, self.tally = options, number, tally
        chance = random.Random(f"{options.seed}/{number}")
        models = MODELS if options.profile != "none" else ("",)
        most, python = most_on_gpu(options.policy), "" if options.isolation == "none" else reachable_python()
        self.steps = workload(options.jobs, chance, self.trail, most, models, python, options.prefetch)
        self.looker = self._look(most) if python else None
        self.acknowledged: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.due: Step | None = None
        self.words = Words()

    def _look(self, most: int) -> subprocess.Popen[bytes]:
        """For jobs that cannot see each other: somebody who can, and a folder that is theirs."""
        os.mkfifo(self.trail / "ask")
        (self.trail / "looker").write_text(LOOKER)
        (self.trail / "trail").touch()
        for path in (self.trail, *self.trail.iterdir()):
            os.chown(path, FIRST_UID, FIRST_UID)
        os.chmod(self.trail, 0o755)
        env = {"PATH": os.environ["PATH"], "TRAIL": str(self.trail), "MOST_ON_GPU": str(most)}
        return subprocess.Popen(["bash", str(self.trail / "looker")], env=env)

    def end(self) -> None:
        """Nobody looks any more."""
        if self.looker is not None:
            self.looker.kill()
            self.looker.wait()

    def play(self, kills: Iterator[tuple[str, Any]], points: int) -> None:
        """Run the service again and again until all jobs have ended; kill it until that many points are reached."""
        done = False
        while not done:
            kill = next(kills) if self.tally.points < points else ("never", 0)
            service = Service(self.home, self.options, kill)
            done = self._drive(service, time.monotonic() + LIMIT_S)
            self._hear(service)
            self.words.fell()
            reap()
            if not done:
                self.tally.restarts += 1
                self.tally.points += 1
                self.tally.kills[service.fell] += 1
                if service.fell == NO_END:
                    self.tally.fault("lost", f"round {self.number} is not done after {LIMIT_S:g} s without a kill")
                    return
                if service.fell.startswith(("by itself", "no answer")):
                    self.tally.fault("complaints", service.fell)

    def _drive(self, service: Service, give_up: float) -> bool:
        """The client: do what is next, then wait for the end. False when the service fell."""
        while time.monotonic() < give_up:
            jobs = service.ask("jobs")
            if jobs is None:
                return False
            self._hear(service)
            state = {name: state for _, name, state in jobs}
            ids = {name: job for job, name, _ in jobs}
            if not self.steps:
                if all(state in FINAL for _, _, state in jobs):
                    return service.end()
            elif self._is_time(self.steps[0], state):
                if not self._do(service, self.steps[0], ids, jobs):
                    return False
                self.steps.pop(0)
                continue
            service.rest(0.03)
        service.fall(NO_END)
        return False

    def _hear(self, service: Service) -> None:
        """Note what the service knows."""
        self.words.hear(service.known, lambda kind, note: self.tally.fault(kind, f"round {self.number}: {note}"))

    def _is_time(self, step: Step, state: dict[str, str]) -> bool:
        """Whether the job that the step waits for has started: once is enough, for it may be stopped again."""
        if step.when == "" or state.get(step.when) != "pending":
            self.due = step
        return self.due is step

    def _do(self, service: Service, step: Step, ids: dict[str, str], jobs: list[list[str]]) -> bool:
        if step.verb != "submit":
            if service.ask(step.verb, ids[step.name], *([step.changes] if step.changes else [])) is None:
                return False
            self.cancelled |= {ids[step.name]} if step.verb == "cancel" else set()
            return True
        if step.specs[0].name in ids:  # it was taken, only the answer was lost; one submission is taken whole
            names = {spec.name for spec in step.specs}
            self.acknowledged |= {job: name for job, name, _ in jobs if name in names}
            return True
        specs = [{**spec.as_dict(), "run": spec.run} for spec in step.specs]
        answer = service.ask("submit", specs)
        if answer is None:
            return False
        for spec, mine in zip(step.specs, answer, strict=True):
            self.acknowledged |= dict.fromkeys(mine, spec.name)
        return True

    # -- what is left --------------------------------------------------------------------------------------------

    def check(self, expected: dict[str, End] | None) -> dict[str, End]:
        """Count what is not as it must be; returns how the jobs ended."""
        fault, where = self.tally.fault, f"round {self.number}"
        with open_journal(str(self.home / "journal.db")) as journal:
            state, records = recover(journal)
            book = Book.thaw(state) if state is not None else Book()
            for record in records:
                book.apply(record)
            story = list(journal.read())
        self.words.check(story, lambda kind, note: fault(kind, f"{where}: {note}"))
        kinds = [(record.kind, record.data.get("why")) for record in story]
        self.tally.promises += sum(kind == "promise" for kind, _ in kinds)
        self.tally.memories += sum(kind == "memory" for kind, _ in kinds)
        self.tally.preemptions += kinds.count(("stop", "preempt"))
        self.tally.turns += kinds.count(("stop", "turn"))
        self.tally.resizes += kinds.count(("stop", "resize"))
        self.tally.suspensions += sum(kind == "suspended" for kind, _ in kinds)
        for job, name in self.acknowledged.items():
            if job not in book.jobs or book.jobs[job].spec.name != name:
                fault("lost", f"{where}: job {job} ({name})")
        for job in book.jobs.keys() - self.acknowledged.keys():
            fault("lost", f"{where}: job {job} is there but nobody submitted it")
        ends = {}
        for job in book.jobs.values():
            code = job.last.exit_code if job.attempts and str(job.state) != "cancelled" else None
            ends[job.id] = (str(job.state), code)
            if job.id in self.cancelled and str(job.state) != "cancelled":
                fault("wrong states", f"{where}: job {job.id} was cancelled and has {job.state}")
            self._check_logs(job)
        if expected is None:  # the undisturbed round
            expected = {job: ENDS.get(name, ("succeeded", 0)) for job, name in self.acknowledged.items()}
        if ends != expected:
            for job_id in ends.keys() | expected.keys():
                if ends.get(job_id) != expected.get(job_id):
                    name = self.acknowledged.get(job_id)
                    note = f"{ends.get(job_id)} instead of {expected.get(job_id)}"
                    fault("wrong states", f"{where}: job {job_id} ({name}) {note}: {book.jobs.get(job_id)}")
        self._check_world(book)
        self._check_trail(book)
        self._check_sizes(book)
        complaints = self.home.parent / "stderr"
        if complaints.exists() and (text := complaints.read_text()):
            fault("complaints", f"{where}: {text[:2000]}")
        self.tally.rounds += 1
        self.tally.jobs += len(book.jobs)
        attempts = [attempt for job in book.jobs.values() for attempt in job.attempts]
        self.tally.attempts += len(attempts)
        self.tally.ahead += sum(bool(attempt.ahead_s) for attempt in attempts)
        self.tally.in_vain += sum(attempt.holds for attempt in attempts)
        return ends

    def _check_logs(self, job: Any) -> None:
        """Output of an attempt is whole when it ended by itself, and never anything but the beginning of that."""
        for attempt in job.attempts:
            key = f"{job.id}-{attempt.number}"
            lines = [f"{key} line {i}\n" for i in range(LINES)]
            whole = "".join(lines) + f"{key} ends with {attempt.exit_code}\n"
            log = LocalLog(key, "stdout", (self.home / "logs" / key,), lambda: False)
            text = log.read(0, 1 << 20).data.decode()
            torn = text != whole if attempt.exit_code is not None else not whole.startswith(text) and text != whole
            if torn and not (attempt.exit_code is None and text.startswith("".join(lines))):
                self.tally.fault("torn logs", f"round {self.number}: {key}: {len(text)} of {len(whole)} characters")

    def _check_world(self, book: Book) -> None:
        fault, where = self.tally.fault, f"round {self.number}"
        apart = isolation(self.home, self.options)
        backend = LocalBackend(self.home / "jobs", home=self.home, gpus=self.options.gpus, isolation=apart)
        try:
            for item in backend.observe():
                fault("leaked records", f"{where}: {item}")
            for path in (self.home / "jobs" / "jobs").iterdir():
                fault("leaked records", f"{where}: {path}")
            for group in backend.groups():
                fault("leaked records", f"{where}: {group}")
            for status in node_statuses(backend.nodes(), book, time.time()):
                if status.gpus_used:
                    fault("leaked GPUs", f"{where}: {status}")
            for pid, what in ours(self.home, backend.label):
                fault("leaked processes", f"{where}: {pid} {what}")
        finally:
            backend.close()

    def _check_trail(self, book: Book) -> None:
        """At most one start per attempt, none that the journal does not know, and no two of a job at once."""
        fault, where = self.tally.fault, f"round {self.number}"
        starts: Counter[str] = Counter()
        until: dict[str, float] = {}
        for line in (self.trail / "trail").read_text().splitlines():
            word, *rest = line.split() or [""]  # complaints of the shell stand between the lines
            if word not in ("start", "end", "double", "clash", "company"):
                continue
            key, at_s = rest[0], float(rest[2])
            job, _, number = key.rpartition("-")
            if word == "double":
                fault("doubled", f"{where}: {key} while another attempt runs")
            elif word == "clash":
                fault("GPUs shared", f"{where}: {key} saw {rest[3]} run")
            elif word == "company":
                self.tally.shared += 1
            elif word == "end":
                until[job] = at_s
            else:
                starts[key] += 1
                if starts[key] > 1 or job not in book.jobs or int(number) > len(book.jobs[job].attempts):
                    fault("doubled", f"{where}: {key} started {starts[key]} times")
                if at_s < until.get(job, 0.0):
                    fault("doubled", f"{where}: {key} started at {at_s}, before the end at {until[job]}")

    def _check_sizes(self, book: Book) -> None:
        """Gangs are as large as they asked to be; elastic ones within their limits, and what they saved is not lost."""
        fault, where = self.tally.fault, f"round {self.number}"
        sizes: dict[str, int] = {}
        for job in book.jobs.values():
            spec = job.spec
            for attempt in job.attempts:
                size = sizes[f"{job.id}-{attempt.number}"] = sum(len(indexes) for _, indexes in attempt.gpus)
                if not (max(spec.min_gpus, 1) <= size <= spec.max_gpus if job.elastic else size == spec.gpus):
                    fault("wrong states", f"{where}: job {job.id} ({spec.name}) had {size} GPUs: {spec}")
        path = self.trail / "steps"
        told = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        after: dict[str, int] = {}  # job -> the least step with which it may go on
        last = ""
        for key, step, gpus in told:
            job_id, number = key.rsplit("-", 1)
            if int(gpus) != sizes.get(key):
                fault("wrong states", f"{where}: {key} believes that it has {gpus} GPUs, not {sizes.get(key)}")
            before = book.jobs[job_id].attempts[int(number) - 2] if key != last and int(number) > 1 else None
            if before is not None and before.exit_code == EXIT_SAVED and int(step) != after.get(job_id, 0):
                fault("wrong states", f"{where}: {key} begins with step {step}, not {after.get(job_id, 0)}")
            after[job_id], last = int(step) + 1, key
        for job_id in (job_id for job_id, name in self.acknowledged.items() if name == "grows"):
            if {int(step) for key, step, _ in told if key.startswith(f"{job_id}-")} != {*range(STEPS)}:
                fault("wrong states", f"{where}: job {job_id} has not made all its steps")


EXIT_SAVED = 75


def ours(home: Path, label: str) -> list[tuple[int, str]]:
    """Living processes that carry our mark or our path."""
    mark, path = f"COTENANT_MARK={label}/".encode(), os.fsencode(home)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command, environ = (Path("/proc", name, file).read_bytes() for file in ("cmdline", "environ"))
            if mark in environ or path in command:
                found.append((int(name), command.replace(b"\0", b" ").decode(errors="replace")[:200]))
    return found


def reap() -> None:
    """Take the status of keepers that a dead service left to us."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
