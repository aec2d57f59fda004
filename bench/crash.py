"""`kill -9` of the live service at many points, and what is left afterwards: `python -m bench.crash --points 500`.

Tiny real jobs run on a real journal (SQLite) and real processes. The service is forked from this process, which
has everything imported, and killed: at the n-th of its steps (it says so before and after every journal write
and every act), at the next step of a chosen kind, or at a random instant. Then it is started again on the same
home. A round ends when all its jobs have ended; an undisturbed round comes first and says what must come out.

Jobs hold a lock of their own name and one per GPU for as long as any process of theirs lives, so that two at
once see each other, whatever the service believes. Of two on one GPU at most one may run: the others stand still.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from cotenant.backends.local import LocalBackend
from cotenant.core.errors import CotenantError
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL
from cotenant.journal import open_journal, recover
from cotenant.service import core
from cotenant.service.book import Book
from cotenant.service.facade import Caller, Conflict, Role
from cotenant.service.run import Loop, first_token, open_service
from cotenant.service.shown import node_statuses

ME = Caller("bench", Role.ADMIN)
GRACE_S = 0.15
ROUND_LIMIT_S = 60.0
LONGEST = 150  # steps a service may take while it waits for a step of the chosen kind
LINES = 40
KINDS = [
    *(f"{side}:{kind}" for side in ("before", "after")
      for kind in ("submit", "launch", "started", "exit", "stop", "snapshot", "kill", "terminate", "launched",
                   "rung", "suspend", "suspended", "continue", "wake", "continued")),
    *("before:reject", "after:reject", "before:archive", "after:archive", "after:forget", "after:reconcile"),
    *("before:hold", "after:hold", "before:resume", "after:resume", "before:policy", "before:token", "after:token"),
]  # fmt: skip
End = tuple[str, int | None]
ENDS: dict[str, End] = {  # of all others: ("succeeded", 0)
    "fails": ("failed", 3), "orphan": ("failed", None), "limit": ("failed", None), "bad": ("failed", None),
    "cancelled": ("cancelled", None), "stubborn": ("cancelled", None), "waits": ("cancelled", None),
}  # fmt: skip
PRELUDE = """
exec 8>>"$TRAIL/trail" 7>>"$TRAIL/job.$COTENANT_JOB"
say() { read -r up _ </proc/uptime; echo "$1 $COTENANT_KEY $$ $up" >&8; }
flock -n 7 || say double
stands() {
    local pid=${1##*.} stat line path=/none
    { read -r stat <"/proc/$pid/stat"; } 2>&8 || return 1
    [[ ${stat##*) } == T* ]] && return 0
    while read -r line; do [[ $line == 0::* || $line == *:freezer:* ]] && path=${line##*:}; done <"/proc/$pid/cgroup"
    grep -qs -e 'frozen 1' -e FROZEN /sys/fs/cgroup{,/unified}"$path"/cgroup.events \\
        /sys/fs/cgroup/freezer"$path"/freezer.state
}
alone() {
    for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do for other in "$TRAIL/gpu.$gpu".*; do
        [[ $other == *.$$ ]] || flock -n "$other" rm -f "$other" || stands "$other" ||
            flock -n "$other" rm -f "$other" || say clash
    done; done
}
for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
    exec {fd}>>"$TRAIL/gpu.$gpu.$COTENANT_KEY.$$"; flock $fd
done
alone
say start
for ((i = 0; i < LINES; i++)); do echo "$COTENANT_KEY line $i"; done
end() { alone; echo "$COTENANT_KEY ends with $1"; say end; exit $1; }
""".replace("LINES", str(LINES))


# -- the workload ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What the client does next, once `when` (a job's name) has started; `name` is the job it is about."""

    verb: str
    name: str = ""
    specs: tuple[JobSpec, ...] = ()
    when: str = ""


def workload(count: int, chance: random.Random, trail: Path) -> list[Step]:
    """At least 20 jobs of every kind that the service treats differently; the rest are short ones."""

    def job(name: str, text: str, expected_s: float = 1.0, **more: Any) -> JobSpec:
        run = f'. "$TRAIL/prelude"; {text}'
        return JobSpec(run=run, name=name, env={"TRAIL": str(trail)}, expected_s=expected_s, **more)

    def short(number: int) -> JobSpec:
        text = f"sleep {chance.uniform(0.02, 0.15):.3f}; end 0"
        return job(f"short-{number}", text, chance.uniform(0.5, 2), gpus=chance.choice((1, 1, 1, 2)))

    shorts = [short(number) for number in range(max(2, count - 20))]
    half = len(shorts) // 2
    steps = [
        Step("submit", specs=(
            job("long-0", "sleep 0.5; end 0", 900, gpus=2), job("long-1", "sleep 0.6; end 0", 800),
            job("deaf", "trap '' TERM; sleep 0.8; end 0", 700))),
        Step("submit", specs=tuple(shorts[:half]), when="long-0"),
        Step("submit", specs=(
            job("fails", "sleep 0.02; end 3", retries=2), job("orphan", "end 0", after=("fails",)),
            job("flaky", 'mkdir "$TRAIL/flaky" 2>&8 && end 4; end 0', retries=1))),
        Step("submit", specs=(
            job("row", "sleep 0.05; end 0", array=(0, 1, 2, 3)), job("first", "sleep 0.05; end 0"),
            job("second", "end 0", after=("first",)), job("third", "end 0", after=("second", "row")))),
        Step("submit", specs=(
            job("cancelled", "sleep 300; end 0"), job("stubborn", "trap '' TERM; while :; do sleep 9; done"),
            job("limit", "sleep 300; end 0", max_runtime_s=0.3))),
        Step("submit", specs=(
            job("waits", "sleep 300; end 0", 9000, gpus=4), job("held", "sleep 0.3; end 0", 2),
            job("daemon", "(trap '' TERM; setsid sleep 300 & ) ; end 0"), job("bad", "kill -SEGV $$; sleep 9"))),
        Step("cancel", "waits"),
        Step("cancel", "cancelled", when="cancelled"),
        Step("hold", "held", when="held"),
        Step("submit", specs=tuple(shorts[half:])),
        Step("cancel", "stubborn", when="stubborn"),
        Step("resume", "held"),
    ]  # fmt: skip
    return steps


def plan(chance: random.Random) -> Iterator[tuple[str, Any]]:
    """Where to kill, in order and without end: all of it follows from the seed."""
    draws = [
        lambda: ("step", chance.randint(1, 20)),
        lambda: ("kind", chance.choice(KINDS)),
        lambda: ("instant", chance.uniform(0.0, 0.4)),
    ]
    while True:
        yield chance.choices(draws, (45, 30, 25))[0]()


# -- the service, in a child -----------------------------------------------------------------------------------------


class Service:
    """A forked service and the line to it."""

    def __init__(self, home: Path, gpus: int, policy: str, kill: tuple[str, Any]) -> None:
        self._line, theirs = socket.socketpair()
        self._heard = b""
        self.fell = ""
        how, what = kill
        self._deadline = time.monotonic() + what if how == "instant" else float("inf")
        self.pid = os.fork()
        if self.pid == 0:
            self._line.close()
            _be_service(theirs, home, gpus, policy, kill)
        theirs.close()

    def ask(self, *request: Any) -> Any:
        """The answer, or None when the service is dead."""
        with contextlib.suppress(OSError):
            self._line.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._heard:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._line], [], [], min(left, 60.0))[0]:
                self._fall("instant" if left <= 60.0 else "no answer for 60 s")
                return None
            try:
                data = self._line.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                self._fall("")
                return None
            self._heard += data
        text, _, self._heard = self._heard.partition(b"\n")
        answer = json.loads(text)
        if isinstance(answer, dict) and "point" in answer:
            self._fall(answer["point"])
            return None
        return answer

    def rest(self, seconds: float) -> None:
        """Let it work for a while, or kill it when its time has come."""
        time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))

    def _fall(self, why: str) -> None:
        """It is dead, or is killed now."""
        if why:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        self._line.close()
        by_itself = not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
        self.fell = f"by itself: {status}" if by_itself else why or "unknown"

    def end(self) -> bool:
        """Ask it to end in an orderly way; False when it was killed on the way."""
        if self.ask("end") is None:
            return False
        os.waitpid(self.pid, 0)
        self._line.close()
        return True


def _be_service(line: socket.socket, home: Path, gpus: int, policy: str, kill: tuple[str, Any]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stderr = os.open(home.parent / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stderr, 2)
        _serve(line, home, gpus, policy, kill)
        code = 0
    except BaseException as error:
        os.write(2, f"the service died: {error!r}\n".encode())
    finally:
        os._exit(code)


def _serve(line: socket.socket, home: Path, gpus: int, policy: str, kill: tuple[str, Any]) -> None:
    how, what = kill
    count = 0

    def hook(point: str) -> None:
        nonlocal count
        count += 1
        if (how == "step" and count >= what) or (how == "kind" and (point == what or count >= LONGEST)):
            line.sendall(json.dumps({"point": point}).encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)

    service = open_service(home=home, policy=policy, db=None, gpus=gpus, grace_s=GRACE_S, max_suspended=2, hook=hook)
    first_token(service, home)
    scheduler = Loop(service)
    scheduler.start()
    for text in line.makefile("r"):
        verb, *args = json.loads(text)
        answer: Any = True
        if verb == "submit":
            answer = service.submit(ME, [JobSpec.from_dict(spec) for spec in args[0]])
        elif verb == "jobs":
            answer = [[info.id, info.name, info.state] for info in service.jobs(ME)]
        elif verb == "end":
            scheduler.stop()
            for _ in range(50):
                if not service.backend.observe():
                    break
                service.backend.wait_change(0.1)
                service.tick()
            service.snapshot()
            service.journal.close()
            service.backend.close()
        else:
            with contextlib.suppress(Conflict):
                getattr(service, verb)(ME, *args)
        line.sendall(json.dumps(answer).encode() + b"\n")
        if verb == "end":
            return


# -- one round -------------------------------------------------------------------------------------------------------


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
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def fault(self, kind: str, note: str) -> None:
        """Count one, and say which."""
        self.faults[kind] += 1
        self.notes.append(f"{kind}: {note}")


FAULTS = (
    *("lost", "doubled", "GPUs shared", "leaked processes", "leaked records", "leaked GPUs"),
    *("wrong states", "torn logs", "complaints"),
)


class Round:
    """One home from its first job to its last."""

    def __init__(self, folder: Path, options: argparse.Namespace, number: int, tally: Tally) -> None:
        self.home, self.trail = folder / "home", folder / "trail"
        self.trail.mkdir(parents=True)
        (self.trail / "prelude").write_text(PRELUDE)
        self.options, self.number, self.tally = options, number, tally
        self.steps = workload(options.jobs, random.Random(f"{options.seed}/{number}"), self.trail)
        self.acknowledged: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.due: Step | None = None

    def play(self, kills: Iterator[tuple[str, Any]], points: int) -> None:
        """Run the service again and again until all jobs have ended; kill it until that many points are reached."""
        give_up = time.monotonic() + ROUND_LIMIT_S
        done = False
        while not done:
            if time.monotonic() > give_up:
                self.tally.fault("lost", f"round {self.number} is not done after {ROUND_LIMIT_S:g} s")
                return
            kill = next(kills) if self.tally.points < points else ("never", 0)
            service = Service(self.home, self.options.gpus, self.options.policy, kill)
            done = self._drive(service, give_up)
            reap()
            if not done:
                self.tally.restarts += 1
                self.tally.points += 1
                self.tally.kills[service.fell] += 1
                if service.fell.startswith(("by itself", "no answer")):
                    self.tally.fault("complaints", service.fell)

    def _drive(self, service: Service, give_up: float) -> bool:
        """The client: do what is next, then wait for the end. False when the service fell."""
        while time.monotonic() < give_up:
            jobs = service.ask("jobs")
            if jobs is None:
                return False
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
        service._fall("no end")
        return False

    def _is_time(self, step: Step, state: dict[str, str]) -> bool:
        """Whether the job that the step waits for has started: once is enough, for it may be stopped again."""
        if step.when == "" or state.get(step.when) != "pending":
            self.due = step
        return self.due is step

    def _do(self, service: Service, step: Step, ids: dict[str, str], jobs: list[list[str]]) -> bool:
        if step.verb != "submit":
            if service.ask(step.verb, ids[step.name]) is None:
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
            kinds = [(record.kind, record.data.get("why")) for record in journal.read()]
        self.tally.preemptions += kinds.count(("stop", "preempt"))
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
        complaints = self.home.parent / "stderr"
        if complaints.exists() and (text := complaints.read_text()):
            fault("complaints", f"{where}: {text[:2000]}")
        self.tally.rounds += 1
        self.tally.jobs += len(book.jobs)
        self.tally.attempts += sum(len(job.attempts) for job in book.jobs.values())
        return ends

    def _check_logs(self, job: Any) -> None:
        """Output of an attempt is whole when it ended by itself, and never anything but the beginning of that."""
        for attempt in job.attempts:
            key = f"{job.id}-{attempt.number}"
            lines = [f"{key} line {i}\n" for i in range(LINES)]
            whole = "".join(lines) + f"{key} ends with {attempt.exit_code}\n"
            path = self.home / "logs" / key / "stdout"
            text = path.read_text() if path.exists() else ""
            torn = text != whole if attempt.exit_code is not None else not whole.startswith(text) and text != whole
            if torn and not (attempt.exit_code is None and text.startswith("".join(lines))):
                self.tally.fault("torn logs", f"round {self.number}: {key}: {len(text)} of {len(whole)} characters")

    def _check_world(self, book: Book) -> None:
        fault, where = self.tally.fault, f"round {self.number}"
        backend = LocalBackend(self.home / "jobs", gpus=self.options.gpus)
        try:
            for item in backend.observe():
                fault("leaked records", f"{where}: {item}")
            for path in (self.home / "jobs" / "jobs").iterdir():
                fault("leaked records", f"{where}: {path}")
            for group in {p for parent in backend._cgroups.parents.values() for p in parent.glob("cotenant.*")}:
                if backend._label in group.name:
                    fault("leaked records", f"{where}: {group}")
            for status in node_statuses(backend.nodes(), book):
                if status.gpus_used:
                    fault("leaked GPUs", f"{where}: {status}")
            for pid, what in ours(self.home, backend._label):
                fault("leaked processes", f"{where}: {pid} {what}")
        finally:
            backend.close()

    def _check_trail(self, book: Book) -> None:
        """At most one start per attempt, none that the journal does not know, and no two of a job at once."""
        fault, where = self.tally.fault, f"round {self.number}"
        starts: Counter[str] = Counter()
        until: dict[str, float] = {}
        for line in (self.trail / "trail").read_text().splitlines():
            word, *rest = line.split()
            if word not in ("start", "end", "double", "clash"):
                continue
            key, at_s = rest[0], float(rest[2])
            job, _, number = key.rpartition("-")
            if word == "double":
                fault("doubled", f"{where}: {key} while another attempt runs")
            elif word == "clash":
                fault("GPUs shared", f"{where}: {key}")
            elif word == "end":
                until[job] = at_s
            else:
                starts[key] += 1
                if starts[key] > 1 or job not in book.jobs or int(number) > len(book.jobs[job].attempts):
                    fault("doubled", f"{where}: {key} started {starts[key]} times")
                if at_s < until.get(job, 0.0):
                    fault("doubled", f"{where}: {key} started at {at_s}, before the end at {until[job]}")


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


# -- all rounds ------------------------------------------------------------------------------------------------------


def main() -> int:
    options = _options()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    core.SNAPSHOT_EVERY = 12
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(options.home or tempfile.mkdtemp(prefix="cotenant-crash-"))
    tally, began = Tally(), time.monotonic()
    expected: dict[str, End] | None = None
    kills = plan(random.Random(options.seed))
    try:
        _warm(folder)
        while tally.rounds <= 1 or tally.points < options.points:
            number = tally.rounds
            now = Round(folder / f"round-{number}", options, number, tally)
            now.play(kills, options.points if number else 0)
            try:
                ends = now.check(expected)
            except CotenantError as error:
                tally.fault("lost", f"round {number}: the journal cannot be read: {error}")
                break
            expected = expected or ends
            if tally.notes:
                break
            shutil.rmtree(folder / f"round-{number}", ignore_errors=True)
            if not options.json:
                print(f"round {number}: {tally.points} points, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        _clear(folder, options)
    _print(tally, time.monotonic() - began, options)
    return 1 if tally.faults else 0


def _warm(folder: Path) -> None:
    """Load in this process, once, what every service would load: policies, SQL, tables."""
    service = open_service(home=folder / "warm", policy="srtf", db=None, gpus=1, grace_s=GRACE_S)
    service.submit(ME, [JobSpec(run="exit 0")])
    while service.book.active:
        service.tick()
        service.backend.wait_change(0.2)
    service.journal.close()
    service.backend.close()


def _clear(folder: Path, options: argparse.Namespace) -> None:
    """After a fault or Ctrl-C: leave no process behind."""
    for home in folder.glob("round-*/home"):
        backend = LocalBackend(home / "jobs", gpus=options.gpus)
        for item in backend.observe():
            backend.kill(item.key)
        backend.close()
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)


def _print(tally: Tally, seconds: float, options: argparse.Namespace) -> None:
    facts = {
        "points": tally.points, "seed": options.seed, "rounds": tally.rounds, "jobs": tally.jobs,
        "attempts": tally.attempts, "restarts": tally.restarts, "preemptions": tally.preemptions,
        "suspensions": tally.suspensions,
        **{name: tally.faults[name] for name in FAULTS}, "seconds": round(seconds, 1),
    }  # fmt: skip
    if options.json:
        print(json.dumps({**facts, "kills": tally.kills, "notes": tally.notes}))
        return
    print("\nkills by kind of point")
    for point, count in sorted(tally.kills.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {point:<20} {count:>5}")
    print()
    for name, value in facts.items():
        print(f"{name:<20} {value:>7}")
    for note in tally.notes:
        print(note)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--points", type=int, default=500, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpus", type=int, default=4, help="virtual GPUs")
    parser.add_argument("--jobs", type=int, default=32, help="jobs per round, about")
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--home", help="an empty folder to work in")
    parser.add_argument("--keep", action="store_true", help="keep that folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
