"""What was measured of jobs that ran: how long they take to come and to go, how long they last, what a step takes.

One tally per thing and key, and keys from the narrow to the wide: the kind of a job (what it trains or runs, who sent
it, how many GPUs, of which type), what it trains or runs whoever sent it, and the GPU type. Records fill it, so it
survives restarts, and is the same after each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from cotenant.beliefs.duration import LogTally
from cotenant.beliefs.watched import program
from cotenant.service.store.job import Attempt, LiveJob

START, SAVE, RESTORE, SUSPENDING, RESUME, EXIT = "start", "save", "restore", "suspend", "resume", "exit"
LENGTH, WORD, STEP = "length", "word", "step"
MOST_KEYS = 5000  # the longest unused are dropped

Key = tuple[str, ...]
_PYTHON = re.compile(r"\bpython|\.py\b|\btorchrun\b|\baccelerate\b|\bdeepspeed\b")
_LEAST = 1e-3  # seconds: what takes no time has no logarithm
_FEW, _NEWS = 2, 0.2  # it is news what the first few values say, and what changes the mean by so much (a logarithm)
_READ = 1000  # characters of a command in which its program is looked for


@lru_cache(4096)
def is_python(run: str) -> bool:
    """Whether a command looks like Python, which takes a while to import what it needs."""
    return _PYTHON.search(run[:_READ]) is not None


def what_runs(job: LiveJob) -> str:
    """What it trains, else what it runs."""
    return job.spec.model or program(job.spec.run)


def kind_key(job: LiveJob, gpu_type: str = "") -> Key:
    """Jobs of one kind, on one GPU type where that is given."""
    return ("kind", what_runs(job), job.tenant, job.user, str(job.spec.gpus), gpu_type)


def phase_keys(job: LiveJob, gpu_type: str) -> tuple[Key, ...]:
    """Where it is looked up how long a job takes to come or to go, the narrow first; "" where no type is known."""
    return (kind_key(job, gpu_type), ("runs", what_runs(job)), ("type", gpu_type))


def length_keys(job: LiveJob) -> tuple[Key, ...]:
    """Where it is looked up how long jobs last, and what their steps take."""
    return (kind_key(job),)


def user_key(job: LiveJob) -> Key:
    """Where it is looked up how right a user is, beside what is known of jobs of this very kind."""
    return ("user", job.tenant, job.user)


class Learned:
    """Tallies by what was measured and of whom; `version` grows with every change.

    `news`: what jobs run of which more is known, for whoever copies it: he empties it.
    """

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        self._of: dict[tuple[str, Key], LogTally] = {}
        for what, key, count, mean, variance in rows:
            self._of[what, tuple(key)] = LogTally(count, mean, variance)
        self.version, self.news = 0, set[str]()

    def add(self, what: str, keys: Iterable[Key], value: float) -> None:
        """One more value, of each of these."""
        self.version += 1
        for key in keys:
            tally = self._of.pop((what, key), None) or LogTally()
            before = tally.mean
            tally.add(max(value, _LEAST))
            self._of[what, key] = tally  # at the end: it was used last
            if key[0] == "runs" and (tally.count <= _FEW or abs(tally.mean - before) > _NEWS):
                self.news.add(key[1])
        while len(self._of) > MOST_KEYS:
            del self._of[next(iter(self._of))]

    def of(self, what: str, keys: Iterable[Key], least: int = 1) -> LogTally | None:
        """The first tally of these that holds at least so many values."""
        for key in keys:
            tally = self._of.get((what, key))
            if tally is not None and tally.count >= least:
                return tally
        return None

    def rows(self) -> list[list[Any]]:
        """Everything as plain data."""
        return [[what, list(key), one.count, one.mean, one.variance] for (what, key), one in self._of.items()]


def learn_start(learned: Learned, job: LiveJob, data: dict[str, Any]) -> None:
    """Its newest attempt has made its first steps: `start_s` after the launch, `restore_s` of it loading."""
    attempt, restore_s = job.last, float(data.get("restore_s", 0.0))
    if "start_s" not in data or attempt.start_s or attempt.suspensions:
        return
    attempt.start_s = max(float(data["start_s"]), _LEAST)
    keys = phase_keys(job, attempt.gpu_type)
    if not attempt.ahead_s:  # else most of it was over before it had its GPUs
        learned.add(START, keys, attempt.start_s - restore_s)
    if restore_s:
        learned.add(RESTORE, keys, restore_s)


def learn_end(learned: Learned, job: LiveJob, data: dict[str, Any], saved: bool, succeeded: bool) -> None:
    """Its newest attempt is over; `saved`: it was asked to leave and did so."""
    learn_start(learned, job, data)
    keys = phase_keys(job, job.last.gpu_type)
    if saved:
        learned.add(SAVE, keys, job.last.stop_s)
    if "exit_s" in data:
        learned.add(EXIT, keys, float(data["exit_s"]))
    if "step_s" in data:
        learned.add(STEP, length_keys(job), float(data["step_s"]))
    if succeeded:
        first, *others = [attempt for attempt in job.attempts if not attempt.holds]
        lasted_s = sum(attempt.ran_s - attempt.lost_s for attempt in job.attempts)
        lasted_s += _hidden_s(learned, first, keys) - sum(attempt.start_s for attempt in others)
        learned.add(LENGTH, length_keys(job), lasted_s)
        if job.spec.expected_s:
            learned.add(WORD, (*length_keys(job), user_key(job)), lasted_s / job.spec.expected_s)


def _hidden_s(learned: Learned, attempt: Attempt, keys: Iterable[Key]) -> float:
    """What is believed to have been over of the start of an attempt before it had its GPUs."""
    usual = learned.of(START, keys) if attempt.ahead_s else None
    return max(math.exp(usual.mean) - attempt.start_s, 0.0) if usual is not None else 0.0
