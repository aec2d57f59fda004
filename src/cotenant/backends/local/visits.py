"""Programs run beside a job, and terminals joined to its own, over a socket in its record. Ships alone with the keeper.

Frames both ways: a letter, four bytes of length (big-endian), the payload.

to the keeper    first X, run a program (NUL-ended entries `argv`, `env`, `tty`), or A, join the job's own terminal;
                 then I input (empty: its end), W rows and columns (two bytes each)
from the keeper  O and E output, Q how it ended (`code 3`, `signal 9`), F why nothing was done

Who goes away hangs up: his program gets SIGHUP. Who does not read what his program prints holds it up; who does not
read what the job's terminal prints is let go, for a job waits for nobody.
"""

# ruff: noqa: SIM105 (contextlib is one more import at every launch)
from __future__ import annotations

import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Begin = Callable[[bytes], tuple[int, int, int, dict[int, str]]]

MOST = 32
_PART = 64 << 10
_FULL = 256 << 10
_TOO_SLOW = 1 << 20
_RECENT = 16 << 10
_LAST_PARTS = 64  # what a program that has ended may still have in its pipes
_FLUSH_MS = 2000
_END_OF_INPUT = b"\x04"


def frame(letter: str, payload: bytes) -> bytes:
    """One message."""
    return letter.encode() + len(payload).to_bytes(4, "big") + payload


def how_ended(status: int) -> bytes:
    """For Q, from a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}".encode() if code < 0 else f"code {code}".encode()


def resize(fd: int, payload: bytes) -> None:
    """Tell a terminal its rows and columns."""
    import fcntl
    import termios

    rows, cols = (int.from_bytes(payload[at : at + 2], "big").to_bytes(2, sys.byteorder) for at in (0, 2))
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, rows + cols + bytes(4))
    except OSError:
        pass


class Visit:
    """One connection: what it asked for, and what is on its way in and out."""

    def __init__(self, sock: int) -> None:
        self.sock, self.inbox, self.outbox = sock, b"", b""
        self.begun = self.joined = self.tty = self.over = False
        self.pid, self.report = 0, -1
        self.input, self.pending, self.input_ends = -1, b"", False
        self.reads: dict[int, str] = {}

    def say(self, letter: str, payload: bytes) -> None:
        """To be sent when the other side takes it; nowhere, if that has hung up."""
        if self.sock >= 0:
            self.outbox += frame(letter, payload)

    def fds(self) -> set[int]:
        """What is this connection's own."""
        own = {self.sock, *self.reads, *(() if self.joined else (self.input,))}
        return own - {-1}


class Visits:
    """All connections of one job. `begin` starts a program; `terminal` is the job's own, -1 if it has none."""

    def __init__(self, poller: select.poll, terminal: int, begin: Begin) -> None:
        self.poller, self.terminal, self.begin = poller, terminal, begin
        self.all: list[Visit] = []
        self.recent = b""

    # -- coming and going ------------------------------------------------------------------------------------------

    def open(self, door: int) -> None:
        """Somebody is at the door."""
        import socket

        with socket.socket(fileno=os.dup(door)) as listener:
            try:
                visit = Visit(listener.accept()[0].detach())
            except OSError:
                return
        os.set_blocking(visit.sock, False)
        self.all.append(visit)
        if len(self.all) > MOST:
            self._refuse(visit, f"{MOST} programs and terminals are joined to this job, which is the most")
        self._settle(visit)

    def handle(self, fd: int, events: int) -> None:
        """Something is ready."""
        if fd == self.terminal:
            for guest in [one for one in self.all if one.joined and one.pending]:
                self._feed(guest)
                self._settle(guest)
            return
        visit = next((one for one in self.all if fd in one.fds()), None)
        if visit is None:
            return
        if fd == visit.sock:
            self._talk(visit, events)
        elif fd == visit.input and events & select.POLLOUT:
            self._feed(visit)
        if fd in visit.reads and events & ~select.POLLOUT:
            self._take(visit, fd)
        self._settle(visit)

    def reaped(self, pid: int, status: int) -> None:
        """A program has ended: all that it printed goes first, then how it ended."""
        for visit in [one for one in self.all if one.pid == pid]:
            for fd in list(visit.reads):
                for _ in range(_LAST_PARTS):
                    if not self._take(visit, fd):
                        break
            try:
                failure = os.read(visit.report, 4096).decode(errors="replace")
            except OSError:
                failure = ""
            if failure:
                code, _, text = failure.partition("\n")
                visit.say("E", f"{text}\n".encode())
                visit.say("Q", f"code {code}".encode())
            else:
                visit.say("Q", how_ended(status))
            visit.over = True
            self._settle(visit)

    def output(self, data: bytes) -> None:
        """The job's own terminal has printed."""
        self.recent = (self.recent + data)[-_RECENT:]
        for visit in [one for one in self.all if one.joined]:
            visit.say("O", data)
            if len(visit.outbox) > _TOO_SLOW:
                self._leave(visit)
            else:
                self._settle(visit)

    def finish(self, status: int) -> None:
        """The job has ended: tell whoever is joined, and wait a moment for slow ones."""
        for visit in list(self.all):
            if visit.joined:
                visit.say("Q", how_ended(status))
            while visit.outbox:
                waiting = select.poll()
                waiting.register(visit.sock, select.POLLOUT)
                if not waiting.poll(_FLUSH_MS):
                    break
                self._flush(visit)
            self._leave(visit)

    def _refuse(self, visit: Visit, why: str) -> None:
        visit.say("F", why.encode())
        visit.begun = visit.over = True

    def _leave(self, visit: Visit) -> None:
        """Hang up. What a program in pipes still prints is read and dropped, so that it can end as it wants."""
        if visit not in self.all:
            return
        lasts = visit.pid and not visit.over and not visit.tty
        for fd in visit.fds() - (set(visit.reads) if lasts else set()):
            self._watch(fd, 0)
            os.close(fd)
        if visit.pid and not visit.over and visit.sock >= 0:
            try:
                os.killpg(visit.pid, signal.SIGHUP)
            except OSError:
                pass
        visit.sock = visit.input = -1
        visit.outbox = b""
        if not lasts:
            self.all.remove(visit)
            if visit.report >= 0:
                os.close(visit.report)

    # -- what is said ----------------------------------------------------------------------------------------------

    def _talk(self, visit: Visit, events: int) -> None:
        if events & ~select.POLLOUT:
            try:
                data = os.read(visit.sock, _PART)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._leave(visit)
                return
            visit.inbox += data
            while len(visit.inbox) >= 5 and len(visit.inbox) >= (end := 5 + int.from_bytes(visit.inbox[1:5], "big")):
                letter, payload = visit.inbox[:1].decode("latin-1"), visit.inbox[5:end]
                visit.inbox = visit.inbox[end:]
                self._hear(visit, letter, payload)
            if len(visit.inbox) > _TOO_SLOW:
                self._leave(visit)
        if events & select.POLLOUT and visit in self.all:
            self._flush(visit)

    def _hear(self, visit: Visit, letter: str, payload: bytes) -> None:
        if letter == "X" and not visit.begun:
            self._run(visit, payload)
        elif letter == "A" and not visit.begun:
            self._join(visit)
        elif letter == "I" and visit.input >= 0:
            visit.input_ends = visit.input_ends or not payload
            visit.pending += payload if payload else _END_OF_INPUT if visit.tty and not visit.joined else b""
            self._feed(visit)
        elif letter == "W" and visit.tty and len(payload) == 4:
            resize(visit.input, payload)

    def _run(self, visit: Visit, payload: bytes) -> None:
        visit.begun = True
        try:
            visit.pid, visit.report, visit.input, visit.reads = self.begin(payload)
        except OSError as error:
            self._refuse(visit, f"nothing was started: {error}")
            return
        visit.tty = visit.input in visit.reads
        for fd in (visit.report, visit.input, *visit.reads):
            os.set_blocking(fd, False)

    def _join(self, visit: Visit) -> None:
        visit.begun = True
        if self.terminal < 0:
            self._refuse(visit, "the job has no terminal")
            return
        visit.joined = visit.tty = True
        visit.input = self.terminal
        visit.say("O", self.recent)

    def _feed(self, visit: Visit) -> None:
        """Hand on input, as much as is taken."""
        try:
            if visit.pending:
                visit.pending = visit.pending[os.write(visit.input, visit.pending) :]
        except BlockingIOError:
            return
        except OSError:
            visit.pending = b""  # nobody reads it any more
        if visit.input_ends and not visit.pending and not visit.tty and visit.input >= 0:
            self._watch(visit.input, 0)
            os.close(visit.input)
            visit.input = -1

    def _take(self, visit: Visit, fd: int) -> bool:
        """Some of what a program prints; False where there is no more for now."""
        try:
            data = os.read(fd, _PART)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal that nobody has open any more
        if data:
            visit.say(visit.reads[fd], data)
        else:
            self._watch(fd, 0)
            del visit.reads[fd]
            if fd != visit.input:
                os.close(fd)
        return bool(data)

    def _flush(self, visit: Visit) -> None:
        try:
            visit.outbox = visit.outbox[os.write(visit.sock, visit.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            self._leave(visit)

    def _settle(self, visit: Visit) -> None:
        """Watch for just what could go on. A connection that is over ends when all is sent."""
        if visit not in self.all:
            return
        if visit.over and not visit.outbox:
            self._leave(visit)
            return
        room = len(visit.outbox) < _FULL
        wanted = dict.fromkeys(visit.fds(), 0)
        for fd in visit.reads:
            wanted[fd] |= select.POLLIN if room else 0
        if not visit.joined and visit.input >= 0:
            wanted[visit.input] |= select.POLLOUT if visit.pending else 0
        if visit.sock >= 0:
            wanted[visit.sock] |= select.POLLIN if len(visit.pending) < _FULL else 0
            wanted[visit.sock] |= select.POLLOUT if visit.outbox else 0
        for fd, events in wanted.items():
            self._watch(fd, events)
        if visit.joined and self.terminal >= 0:
            busy = any(one.pending for one in self.all if one.joined)
            self._watch(self.terminal, select.POLLIN | (select.POLLOUT if busy else 0))

    def _watch(self, fd: int, events: int) -> None:
        if events:
            self.poller.register(fd, events)
        else:
            try:
                self.poller.unregister(fd)
            except KeyError:
                pass
