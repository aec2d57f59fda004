"""Slurm through its own commands: one poll for all our jobs, one for all nodes, and what is asked of single jobs.

Jobs of ours are known by their comment, `cotenant:LABEL/WHAT`, where the label names the home of the service. Whoever
does not answer in time is `Unreachable`; what is refused is a `BackendError` with Slurm's own words.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotenant.backends.base import BackendError, Unreachable

_FIRST_S = 1.0  # for an answer, once there was none
ENDED = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED",
     "REVOKED")
)  # fmt: skip
WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"))
_FORMAT = "%A|%T|%r|%e|%N|%k"
_MARK = "cotenant:"
_HANDED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "SLURM_CONF")  # of our environment, to jobs
_AWAY = re.compile(
    r"unable to contact slurm controller|connect failure|connection refused|timed out|communication connection"
    r"|zero bytes were transmitted|slurm backup controller in standby|protocol authentication error",
    re.IGNORECASE,
)
_BUSY = re.compile(r"temporarily unable to accept|resource temporarily unavailable|max(imum)? job", re.IGNORECASE)
_GONE = re.compile(r"invalid job id|already completing or completed|job/step already", re.IGNORECASE)


class Busy(BackendError):
    """The controller takes no more jobs at the moment."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One line of the poll. `what` is what the comment says after our label."""

    id: int
    state: str
    reason: str
    ends_s: float
    nodes: str
    what: str

    @property
    def over(self) -> bool:
        """Whether nothing of it can run any more."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        """Whether nothing of it has run yet."""
        return self.state in WAITING

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Which of several with one comment counts: the highest."""
        return not self.over, not self.waits, self.id


class Slurm:
    """The commands, as the user who runs the service; `SLURM_CONF` and the like are taken from the environment.

    `refused` counts submissions that the controller did not take because it had too many, `took_s` is how long the last
    poll took, `slowest_s` the longest so far. `away` says why the last command found nobody within `answer_s`: the next
    one is given up sooner.
    """

    def __init__(self, label: str, answer_s: float = 8.0) -> None:
        self.label, self._answer_s, self._patience_s = label, answer_s, answer_s
        self.refused, self.polls, self.took_s, self.slowest_s, self.away = 0, 0, 0.0, 0.0, ""
        self._env = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        for name in [name for name in self._env if name.startswith(("SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_"))]:
            del self._env[name]
        self._lock = threading.Lock()

    # -- asking ----------------------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, SlurmJob]:
        """All jobs of this label that the controller remembers, in one call.

        Of several with one comment (a submission whose answer was lost) one that runs, else one that waits, else the
        last.
        """
        began = time.monotonic()
        found: dict[str, SlurmJob] = {}
        ours = f"{_MARK}{self.label}/"
        for line in self.run("squeue", "-h", "-a", "-t", "all", "--me", "-o", _FORMAT).splitlines():
            parts = line.split("|", 5)
            if len(parts) == 6 and parts[5].startswith(ours):
                number, state, reason, ends, nodes, comment = parts
                what = comment.removeprefix(ours)
                job = SlurmJob(int(number), state, reason, _time(ends), nodes, what)
                if what not in found or found[what].rank < job.rank:
                    found[what] = job
        with self._lock:
            self.polls += 1
            self.took_s = time.monotonic() - began
            self.slowest_s = max(self.slowest_s, self.took_s)
        return found

    def nodes(self) -> list[dict[str, str]]:
        """What Slurm says of every node."""
        lines = self.run("scontrol", "show", "node", "-o").splitlines()
        return [{**fields_of(line), "Reason": reason_of(line)} for line in lines if line.strip()]

    def partitions(self) -> list[dict[str, str]]:
        """What Slurm says of every partition."""
        lines = self.run("scontrol", "show", "partition", "-o").splitlines()
        return [fields_of(line) for line in lines if line.strip()]

    def config(self) -> dict[str, str]:
        """Slurm's settings."""
        lines = (line.partition("=") for line in self.run("scontrol", "show", "config").splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in lines}

    # -- doing -----------------------------------------------------------------------------------------------------

    def submit(self, what: str, options: Sequence[str], script: str, env: Mapping[str, str] | None = None) -> int:
        """Submit a script under a comment that is ours; its number."""
        mark = f"--comment={_MARK}{self.label}/{what}"
        few = {name: value for name, value in self._env.items() if name in _HANDED_ON}
        out = self.run("sbatch", "--parsable", "--no-requeue", mark, *options, text=script, env={**few, **(env or {})})
        return int(out.strip().split(";")[0].splitlines()[-1])

    def cancel(self, number: int) -> bool:
        """Take a job away: a waiting one at once, a running one by SIGTERM and, KillWait later, SIGKILL for all of it.

        False where it is gone.
        """
        return self._act("scancel", str(number))

    def signal(self, number: int, name: str, batch: bool) -> bool:
        """Send a signal to the shell of a batch job only, or to everything."""
        return self._act("scancel", f"--signal={name}", "--batch" if batch else "--full", str(number))

    def control(self, *words: str) -> bool:
        """`scontrol`: suspend, resume, update."""
        return self._act("scontrol", *words)

    def _act(self, *words: str) -> bool:
        try:
            self.run(*words)
        except Unreachable:
            raise
        except BackendError as error:
            if _GONE.search(str(error)):
                return False
            raise
        return True

    def run(self, *words: str, text: str = "", env: Mapping[str, str] | None = None) -> str:
        """What a command prints."""
        try:
            done = subprocess.run(
                words, input=text, capture_output=True, text=True, timeout=self._patience_s,
                env=self._env if env is None else env,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise self._unreachable(f"{words[0]} had no answer within {self._patience_s:g} s") from None
        except OSError as error:
            raise BackendError(f"{words[0]}: {error.strerror}: install Slurm's commands (slurm-client)") from None
        said = " ".join(done.stderr.split())
        if _BUSY.search(said):
            with self._lock:
                self.refused += 1
        if done.returncode == 0:
            self.away, self._patience_s = "", self._answer_s
            return done.stdout
        if _AWAY.search(said):
            raise self._unreachable(said)
        kind = Busy if _BUSY.search(said) else BackendError
        raise kind(f"{words[0]}: {said or f'exit code {done.returncode}'}")

    def _unreachable(self, why: str) -> Unreachable:
        again_s = self._patience_s * 2 if self.away else _FIRST_S
        self.away, self._patience_s = why, min(again_s, self._answer_s)
        return Unreachable(f"Slurm cannot be reached: {why}")


def fields_of(line: str) -> dict[str, str]:
    """`Name=value` pairs of one line of `scontrol -o`; values with blanks keep their first word."""
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


def reason_of(line: str) -> str:
    """Why a node is drained or down, as whoever said so wrote it; empty where nobody did."""
    found = re.search(r"\bReason=(.*?)(?: \[[^][]*@[^][]*\]| Comment=|$)", line.strip())
    return found[1].strip() if found else ""


def _time(text: str) -> float:
    """Seconds since 1970; 0 where there is no such time."""
    return float(text) if text.isdigit() else 0.0
