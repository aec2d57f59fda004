"""One cell of `bench.faults`: a service with three jobs, one of them brought into a phase, and then the fault.

Jobs keep a diary. Each holds a lock while it runs, so that two processes of one job at a time are seen by the second;
it writes when it begins, when it is told to leave and when it ends. Judged are the diary and the states at the end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.fault_kit import Case
from bench.fault_worlds import Cable, Victim, World
from cotenant.client import Client
from cotenant.core.errors import CotenantError
from cotenant.service.facade import AttemptInfo

PHASES = ("starting", "running", "stopping", "suspended")
KILLS = ("node killed", "agent killed")  # may cost a job its process; all others may not
PATIENCE_S = 120.0
_JOB = """
exec 9>>{trail}/lock.$COTENANT_JOB
flock -n 9 || echo "$COTENANT_KEY double" >> {trail}/diary
echo "$COTENANT_KEY began" >> {trail}/diary
trap 'echo "$COTENANT_KEY told" >> {trail}/diary; until [ -e {trail}/leave ]; do sleep 0.1 9>&-; done; exit 75' TERM
until [ -e {trail}/go ]; do sleep 0.1 9>&-; done
echo "$COTENANT_KEY ended" >> {trail}/diary
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One of the table."""

    fault: str
    phase: str
    backend: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.fault} while {self.phase}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Acknowledged jobs that did not succeed, that ran twice at once or ended twice, that had to begin again though
    the fault cost no process, and processes that were left."""

    lost: int = 0
    doubled: int = 0
    again: int = 0
    left: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether nobody came to harm."""
        return not (self.lost or self.doubled or self.again or self.left or self.note)


class Play:
    """One cell at work in a folder."""

    def __init__(
        self, cell: Cell, world: World, folder: Path, home: Path, db: str, cable: Cable | None, away_s: float
    ) -> None:
        self.cell, self.world, self.away_s = cell, world, away_s
        self._trail, self._diary = folder / "trail", folder / "trail" / "diary"
        self._trail.mkdir()
        self._diary.touch()
        self.backend = world.backend(folder.name)
        words = ["--backend", self.backend, *(["--standby"] if cell.fault == "leader killed" else [])]
        self.home, before = home, cable.within if cable is not None else ()
        self._cases = [Case(folder, self.home, db or None, words, before, world.env)]
        if cell.fault == "leader killed":
            home = self.home if world.one_home else folder / "second"
            self._cases.append(Case(folder / "other", home, db, words, before, world.env))
        self._client: Client | None = None
        self._jobs: dict[str, str] = {}

    # -- the service and its jobs ----------------------------------------------------------------------------------

    @property
    def service(self) -> Case:
        """The one that leads."""
        return self._cases[0]

    @property
    def client(self) -> Client:
        """By the Unix socket: no network is between us, and no clock."""
        if self._client is None:
            home = self.service.home
            self._client = Client(f"unix:{home / 'api.sock'}", (home / "token").read_text().strip())
        return self._client

    def start(self) -> None:
        """Start the service, or start it again."""
        if text := self.service.start():
            raise RuntimeError(text)
        self._client = None

    def take_over(self) -> None:
        """The leader is killed; the one that stands by leads from now on."""
        gone = self._cases.pop(0)
        (self.service.home / "url").unlink(missing_ok=True)
        gone.kill()
        self._client = None
        self.until((self.service.home / "url").exists)

    def begin(self) -> None:
        """The service is there, and one job runs; the other service stands by."""
        self.start()
        for other in self._cases[1:]:
            if other.home != self.home:
                other.home.mkdir(mode=0o700)
                (other.home / "runtime.key").write_bytes((self.home / "runtime.key").read_bytes())
            other.spawn()
        self.submit("other")
        self.until(lambda: self.state("other") == "running" and self.wrote("other", "began"))

    def submit(self, name: str) -> None:
        """One more; what is acknowledged counts."""
        spec = {"run": _JOB.format(trail=self._trail), "name": name, "gpus": self.world.gpus}
        ((self._jobs[name],),) = self.client.submit([spec])

    def state(self, name: str) -> str:
        """As the service says; nothing while it does not answer."""
        try:
            return str(self.client.job(self._jobs[name]).state)
        except (CotenantError, OSError):
            return ""

    def wrote(self, name: str, word: str) -> int:
        """How often any attempt of a job wrote this."""
        lines = (line.rpartition("-")[0::2] for line in self._diary.read_text().splitlines())
        return sum(job == self._jobs[name] and rest.split()[-1] == word for job, rest in lines)

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Wait for something."""
        self.service.until(condition, seconds)

    def asked(self, act: Callable[[], object]) -> None:
        """Ask until it is taken."""

        def taken() -> bool:
            with suppress(CotenantError, OSError):
                act()
                return True
            return False

        self.until(taken)

    def reach(self) -> None:
        """Bring the victim into its phase."""
        self.submit("victim")
        if self.cell.phase == "starting":
            self.until(lambda: self.state("victim") in ("starting", "running"))
        else:
            self.until(lambda: self.state("victim") == "running" and self.wrote("victim", "began"))
        if self.cell.phase == "stopping":
            self.client.requeue(self._jobs["victim"])
            self.until(lambda: self.wrote("victim", "told"))
        if self.cell.phase == "suspended":
            self.client.hold(self._jobs["victim"])
            self.until(lambda: self.state("victim") == "suspended")
        self.submit("waits")

    def victim(self) -> Victim:
        """Where it is."""
        last = self.client.job(self._jobs["victim"]).attempts[-1]
        return Victim(f"{self._jobs['victim']}-{last.number}", last.nodes[0][0], self.home)

    def meanwhile(self) -> None:
        """A job that comes while something is broken is taken or refused, and counts if it is taken."""
        with suppress(CotenantError, OSError):
            self.submit("meanwhile")

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self) -> Verdict:
        """Let all go, and judge."""
        if self.cell.phase == "suspended":
            self.asked(lambda: self.client.resume(self._jobs["victim"]))
        (self._trail / "leave").touch()
        (self._trail / "go").touch()
        note = ""
        with suppress(TimeoutError):
            self.until(lambda: all(self.state(name) in ("succeeded", "failed", "cancelled") for name in self._jobs))
        ends = {name: self.state(name) for name in self._jobs}
        if bad := {name: state for name, state in ends.items() if state != "succeeded"}:
            note = f"{bad}: {self._why(next(iter(bad)))}"
        began, ended = ({name: self.wrote(name, word) for name in self._jobs} for word in ("began", "ended"))
        lines = self._diary.read_text().splitlines()
        repeated = [line for line, count in Counter(lines).items() if count > 1 and not line.endswith("told")]
        doubled = len(repeated) + sum(line.endswith("double") for line in lines)
        doubled += sum(count > 1 for count in ended.values())
        tried = {name: self._tried(name) for name in self._jobs}
        must = {name: 1 + sum(map(_moved, attempts, attempts[1:])) for name, attempts in tried.items()}
        must["victim"] += self.cell.phase == "stopping"
        again = 0 if self.cell.fault in KILLS else sum(began[name] > must[name] for name in self._jobs)
        if doubled or again:
            note = note or f"{lines} { {name: [one.why for one in attempts] for name, attempts in tried.items()} }"
        return Verdict(sum(state != "succeeded" for state in ends.values()), doubled, again, self._left(), note=note)

    def _tried(self, name: str) -> tuple[AttemptInfo, ...]:
        """Its attempts."""
        with suppress(CotenantError, OSError):
            return self.client.job(self._jobs[name]).attempts
        return ()

    def _why(self, name: str) -> str:
        with suppress(CotenantError, OSError):
            return str(self.client.job(self._jobs[name]).reason)
        return "the service does not answer"

    def _left(self) -> int:
        """Processes of jobs that are there after their end."""
        mark = os.fsencode(f"{self._trail}/lock")

        def ours() -> int:
            found = 0
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    found += mark in Path(f"/proc/{pid}/cmdline").read_bytes()
            return found

        with suppress(TimeoutError):
            self.until(lambda: not ours(), 10.0)
        return ours()

    def close(self) -> None:
        """Nothing may outlive its folder."""
        for name in ("leave", "go"):
            (self._trail / name).touch()
        for case in self._cases:
            case.kill()


def _moved(one: AttemptInfo, after: AttemptInfo) -> bool:
    """Whether it began again by choice: it was suspended, its GPUs were others' by then, and further ones free."""
    return one.why.startswith("its GPUs were not to be had") and one.nodes != after.nodes
