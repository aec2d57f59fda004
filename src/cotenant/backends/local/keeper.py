"""The keeper: one small process beside each job, which outlives the service and tells how the job ended.

It is started by path, without site-packages and without the rest of Cotenant, and imports only what starts fast (no
json, no re: this file is on the path of every launch). It holds the record's lock for as long as it lives. The lock
arrives already taken, inherited from `launch`, so there is no instant at which nobody holds it.

Order is what makes it safe: the child waits behind a pipe until its identity is on disk, so user code never runs
unrecorded; the exit record is written after the last process is gone, so a GPU is never reported free too early.
As subreaper it inherits whatever the job leaves behind, daemons included, and ends them. When it dies itself, so does
the program: an end that nobody saw would be tried again, and the work done twice.
"""

# ruff: noqa: SIM105 (contextlib is one more import at every launch)
from __future__ import annotations

import os
import select
import signal
import sys
import time

if __package__:
    from cotenant.backends.local.keeper_files import (
        is_socket,
        notify,
        publish,
        put,
        quote,
        reserve,
        start_ticks,
        text_of,
    )
    from cotenant.backends.local.output import Log, Marks
    from cotenant.backends.local.overtime import Overtime
    from cotenant.backends.local.visits import Visits
else:  # started by path, with the folder of this file on the path
    from keeper_files import (  # type: ignore[import-not-found,no-redef]
        is_socket,
        notify,
        publish,
        put,
        quote,
        reserve,
        start_ticks,
        text_of,
    )
    from output import Log, Marks  # type: ignore[import-not-found,no-redef]
    from overtime import Overtime  # type: ignore[import-not-found,no-redef]
    from visits import Visits  # type: ignore[import-not-found,no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Confine(Protocol):
        """How a process becomes another user's, and is shut in: the module `isolation.confine`."""

        def enter(self, job: KeptJob) -> None:
            """For the first process of a job."""

        def join(self, job: KeptJob, leader: int) -> None:
            """For one more, beside the first."""


SWEEP_MS = 50
LOCK = 3
DOOR = 4  # a socket that listens in the record; something else where there can be none
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class KeptJob:
    """What `launch` asked for, read from a file of NUL-ended `name=value` entries (values hold anything but NUL)."""

    def __init__(self, raw: bytes) -> None:
        self.fields: dict[str, list[str]] = {}
        for entry in raw.split(b"\0")[:-1]:
            name, _, value = os.fsdecode(entry).partition("=")
            self.fields.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """Every value of a name, in order."""
        return self.fields.get(name, [])

    def one(self, name: str) -> str:
        """The only value of a name."""
        return self.fields[name][0]


def prctl(option: int, value: int) -> None:
    """Change something of this process (prctl(2)); where that cannot be done it is noted and left out."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError) as error:
        print(f"no prctl {option}:", error, file=sys.stderr, flush=True)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Be killed when this process, our parent, dies; also if it did so just now."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def make_cgroups(job: KeptJob) -> None:
    """Create the job's cgroups and set their limits. What the kernel refuses is noted and left out."""
    for path in job.all("cgroup"):
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        except OSError as error:
            print("cgroup:", error, file=sys.stderr, flush=True)
    for entry in job.all("cgset"):
        path, _, value = entry.partition("\n")
        try:
            put(path, value)
        except OSError as error:
            print("cgroup limit:", path, error, file=sys.stderr, flush=True)


class Files:
    """Standard input, output and error of a program, and our ends of them: a terminal is all three, and both ways."""

    def __init__(self, tty: bool, fed: bool = True) -> None:
        self.tty = tty
        self.ours: tuple[int, ...]
        if tty:
            self.input, slave = os.openpty()
            self.theirs, self.ours = (slave, slave, slave), (self.input,)
            return
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        in_r, self.input = os.pipe() if fed else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)
        self.theirs, self.ours = (in_r, out_w, err_w), (out_r, err_r)

    def let_go(self) -> None:
        """The program has its ends."""
        for fd in set(self.theirs):
            os.close(fd)


def become(job: KeptJob, go: int, report: int, files: Files, confine: Callable[[KeptJob], None] | None) -> None:
    """In the child: take on session, limits, files and directory, wait for the word, become the user's program."""
    try:
        keeper = os.getppid()
        os.setsid()
        if files.tty:
            import fcntl
            import termios
        for path in job.all("cgroup"):
            try:
                put(path + "/cgroup.procs", "0")
            except OSError as error:
                print("cgroup:", path, error, file=sys.stderr, flush=True)
        if job.all("cpu"):
            os.sched_setaffinity(0, [int(core) for core in job.all("cpu")])
        if job.all("rlimit_as"):
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (int(job.one("rlimit_as")),) * 2)
        if not os.read(go, 1):
            os._exit(0)  # the keeper died before it could record us: nothing has run
        die_with(keeper)
        if confine is not None:
            confine(job)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # another user has to ask anew
        os.chdir(job.one("workdir"))
        for target, source in enumerate(files.theirs):
            os.dup2(source, target)
        if files.tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        env = dict(entry.partition("=")[::2] for entry in job.all("env"))
        argv = job.all("argv")
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        where = error.filename or job.all("argv")[0]
        os.write(report, f"{126 if isinstance(error, PermissionError) else 127}\n{where}: {error.strerror}".encode())
    except BaseException as error:
        os.write(report, f"127\n{error!r}".encode())
    finally:
        os._exit(127)


def sweep(job: KeptJob) -> None:
    """Kill all that is left of the job; repeated by the caller until nothing is."""
    for track in job.all("track"):
        try:
            put(track + "/cgroup.kill", "1")
        except OSError:
            _kill_each(text_of(track + "/cgroup.procs"))
    _kill_each(text_of(f"/proc/self/task/{os.getpid()}/children"))


def _kill_each(pids: str) -> None:
    for pid in pids.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def was_oom(job: KeptJob) -> bool:
    """Whether the kernel killed one of ours for memory (memory.events in v2, memory.oom_control in v1)."""
    for path in job.all("oom"):
        for line in text_of(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and int(count) > 0:
                return True
    return False


class Watch:
    """The wait for the end: pump the job's output, reap what dies, sweep what stays."""

    def __init__(
        self, job: KeptJob, leader: int, wake: int, logs: dict[int, Log], marks: Marks, confine: Confine | None
    ) -> None:
        self.job, self.leader, self.wake, self.logs, self.marks = job, leader, wake, logs, marks
        self.terminal = next(iter(logs)) if job.all("tty") else -1
        self.status: int | None = None
        self.ended_s = 0.0
        self.deadline = 0.0
        limits = float((job.all("max_s") or ["0"])[0]), float(job.one("grace_s"))
        self.overtime = Overtime(*limits, leader, job.one("notify"), lambda: sweep(job))
        self.poller = select.poll()
        self.visits = Visits(self.poller, self.terminal, lambda asked: start_beside(job, asked, leader, confine))
        for fd in (wake, *logs, *([DOOR] if is_socket(DOOR) else [])):
            os.set_blocking(fd, False)
            self.poller.register(fd, select.POLLIN)

    def run(self) -> None:
        """Return when the job and all its descendants are gone and their output is stored."""
        while self._reap():
            wait_ms = self.overtime.press()
            if self.status is not None:
                wait_ms = (self.deadline - time.monotonic()) * 1000
                if wait_ms <= 0:
                    sweep(self.job)
                    wait_ms = SWEEP_MS
            for fd, events in self.poller.poll(wait_ms):
                if fd == DOOR:
                    self.visits.open(DOOR)
                elif fd in self.logs or fd == self.wake:
                    if events & ~select.POLLOUT:
                        self._pump(fd)
                    if events & select.POLLOUT:
                        self.visits.handle(fd, events)
                else:
                    self.visits.handle(fd, events)
        for fd in list(self.logs):
            while self._pump(fd):
                pass
        self.visits.finish(self.status or 0)

    def _pump(self, fd: int) -> bool:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal that nobody has open any more
        if fd == self.wake:
            return True
        if data:
            self.marks.note()
            self.logs[fd].write(data)
            if fd == self.terminal:
                self.visits.output(data)
        else:
            self.poller.unregister(fd)
            os.close(fd)
            del self.logs[fd]
            if fd == self.terminal:
                self.terminal = self.visits.terminal = -1
        return bool(data)

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.leader:
                self.status, self.ended_s = status, time.time()
                polite = os.path.exists("term") or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in POLITE)
                self.deadline = time.monotonic() + (float(self.job.one("grace_s")) if polite else 0.0)
            else:
                self.visits.reaped(pid, status)


def start_beside(
    job: KeptJob, asked: bytes, leader: int, confine: Confine | None
) -> tuple[int, int, int, dict[int, str]]:
    """One more program, where and as the job runs. Returns the child, where it says what went wrong, and its files."""
    wanted, own = KeptJob(asked), KeptJob(b"")
    own.fields = {**job.fields, "argv": wanted.all("argv"), "env": job.all("env") + wanted.all("env")}
    files = Files(bool(wanted.all("tty")))
    go_r, go_w = os.pipe()
    report_r, report_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(LOCK)
        become(own, go_r, report_w, files, (lambda job: confine.join(job, leader)) if confine is not None else None)
    files.let_go()
    os.write(go_w, b"!")
    for fd in (go_r, go_w, report_w):
        os.close(fd)
    return pid, report_r, files.input, dict(zip(files.ours, "OE", strict=False))


def start(job: KeptJob, confine: Confine | None) -> tuple[int, float, str, dict[int, Log], Marks]:
    """Fork, record, let go. Returns the child, its start, what went wrong at its exec ('' if nothing), its output.

    From when it is recorded the child may be told to end: until its program could hear that, it waits for it.
    """
    files = Files(bool(job.all("tty")), fed=False)
    go_r, go_w = os.pipe()
    report_r, report_w = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, POLITE)
    pid = os.fork()
    if pid == 0:
        os.close(LOCK)  # it says that the keeper lives
        os.close(go_w)
        become(job, go_r, report_w, files, confine.enter if confine is not None else None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, POLITE)
    files.let_go()
    for fd in (go_r, report_w):
        os.close(fd)
    started_s = time.time()
    boot = text_of("/proc/sys/kernel/random/boot_id").strip()
    me = os.getpid()
    publish(
        "child.json",
        f'{{"pid": {pid}, "ticks": {start_ticks(pid)}, "keeper": {me}, "keeper_ticks": {start_ticks(me)}, '
        f'"boot": {quote(boot)}, "started_s": {started_s!r}}}\n',
    )
    try:
        os.write(go_w, b"!")
    except OSError:
        pass
    os.close(go_w)
    failure = b""
    while part := os.read(report_r, 4096):
        failure += part
    os.close(report_r)
    kept = [Log(stream, int(job.one(f"{stream}_limit"))) for stream in ("stdout", "stderr")]
    logs = dict(zip(files.ours, kept, strict=False))  # a terminal has one for both
    return pid, started_s, failure.decode(errors="replace"), logs, Marks(*kept)


def record_exit(job: KeptJob, status: int, started_s: float, ended_s: float, failure: str) -> None:
    """The last word: durable, because the service may read it only after the machine has been off.

    `failure`: the exit code of a job that could not be started, and why; no code where it was the keeper that failed.
    """
    first, _, message = failure.partition("\n")
    code, number = int(first) if first else None, "null"
    if not failure:
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            number, code = str(-code), None
    oom = "true" if was_oom(job) else "false"
    for path in job.all("cgroup"):
        try:
            os.rmdir(path)
        except OSError:
            pass  # `forget` tries again
    publish(
        "exit.json",
        f'{{"code": {"null" if code is None else code}, "signal": {number}, "oom": {oom}, '
        f'"started_s": {started_s!r}, "ended_s": {ended_s!r}, "message": {quote(message[:400])}}}\n',
        durable=True,
    )


def main(record: str, confine: Confine | None = None) -> None:
    """Keep one job from start to end. `confine` makes its processes another user's."""
    os.closerange(DOOR + 1, 1 << 20)
    for fd in (LOCK, DOOR):
        os.set_inheritable(fd, False)
    os.chdir(record)
    fd = os.open("keeper.in", os.O_RDONLY | os.O_CLOEXEC)
    raw = b""
    while part := os.read(fd, 1 << 20):
        raw += part
    os.close(fd)
    os.unlink("keeper.in")  # it holds the environment, and with it whatever secrets the job was given
    job = KeptJob(raw)
    if own := tuple(job.all("own_env")):
        job.fields["env"] += [f"{name}={value}" for name, value in os.environ.items() if name.startswith(own)]
    for number in POLITE:
        signal.signal(number, signal.SIG_IGN)
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    started_s = time.time()
    try:
        reserve("exit.json")
        adopt_orphans()
        make_cgroups(job)
        pid, started_s, failure, logs, marks = start(job, confine)
        notify(job.one("notify"))
        watch = Watch(job, pid, wake_r, logs, marks, confine)
        watch.run()
        record_exit(job, watch.status or 0, started_s, watch.ended_s, failure)
    except Exception as error:
        sweep(job)
        record_exit(job, 0, started_s, time.time(), f"\nthe keeper failed: {error!r}")
        raise
    finally:
        notify(job.one("notify"))
    os._exit(0)  # what Python would tidy up takes longer than all of the above
