"""One token per resource, handed round the jobs that share GPUs, so that their stages overlap instead of colliding.

Members of a group are on one machine and see one folder. Everything is a lock on a byte of one file in it, and the
kernel drops the locks of a process that ends, however it ends: who holds a token (one byte per resource and group), who
waits for it (one byte per resource and member). Of those who wait the next one after the last holder, in the planned
order, has it; a token that nobody holds is taken at once. Whoever lets go wakes the next with a datagram; who waits
looks by himself now and then, too, in case the holder was killed. Who has waited too long (the holder hangs, or was
suspended) goes on without the token, and does not wait for that holder again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading
import time
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

RESOURCES = ("load", "preprocess", "compute", "synchronise")
"""Stages of a step, by what they keep busy: storage, CPU, GPU, network."""

_LOCK = "hhqqi"  # struct flock: type, whence, start, length, pid
_HOLDER = struct.Struct("qq")  # in the file: who took a token last, and when
_RESOURCE, _TOKEN = 1 << 48, 1 << 40  # in the lock space: where a resource begins, and its tokens after its members
_NAP_S = 0.05  # between two looks of somebody who waits and is not woken
_YIELD_S = 0.02  # a free token goes to whoever is there, if the one whose turn it is has not taken it by then


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """A group: the name of its file, the number of this member, and of all members in the order of their turns."""

    where: str = ""
    me: int = 0
    members: tuple[int, ...] = ()

    @property
    def group(self) -> int:
        """The same for all who know of the same members: a token of another group is another token."""
        return zlib.crc32(" ".join(map(str, sorted(self.members))).encode())


class Place:
    """The file of the groups on some GPUs, and where this member is woken. Stays open as long as the process lives:

    closing a file drops all locks that the process has on it, whoever took them.
    """

    def __init__(self, folder: Path, where: str, me: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.file = os.open(folder / where, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.name = f"\0cotenant-turns-{os.fstat(self.file).st_ino}"  # of sockets: it goes with the process
        self.bells = [self._bell(f"{self.name}-{at}-{me}") for at in range(len(RESOURCES))]
        self.threads = [threading.Lock() for _ in RESOURCES]  # locks of a file do not tell threads apart

    @staticmethod
    def _bell(name: str) -> socket.socket:
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.setblocking(False)
        with contextlib.suppress(OSError):  # without a name it still looks by itself
            bell.bind(name)
        return bell


place_of = lru_cache(maxsize=None)(Place)
"""Each place once."""


class StageTokens:
    """The tokens of one group, as one member sees them."""

    def __init__(self, folder: Path, line: TurnOrder) -> None:
        self.line = line
        place = place_of(folder, line.where, line.me)
        self._file, self._name, self._bells, self._threads = place.file, place.name, place.bells, place.threads
        self._hung: list[tuple[int, int] | None] = [None] * len(RESOURCES)  # whom nobody waits for any more, and since

    def take(self, resource: str, patience_s: float) -> bool:
        """Wait for a token. False: it could not be had in time, the stage goes on without."""
        at = RESOURCES.index(resource)
        self._threads[at].acquire()
        if self._is_hung(at) or not self._wait(at, patience_s):
            self._threads[at].release()
            return False
        self._hung[at] = None
        os.pwrite(self._file, _HOLDER.pack(self.line.me, time.monotonic_ns()), at * _HOLDER.size)
        return True

    def give(self, resource: str) -> None:
        """Hand a token on."""
        at = RESOURCES.index(resource)
        self._unlock(self._token(at))
        waiting = next((one for one in self._in_turn(at) if one != self.line.me and self._waits(at, one)), None)
        if waiting is not None:
            with contextlib.suppress(OSError):  # it looks by itself, soon
                self._bells[at].sendto(b"t", f"{self._name}-{at}-{waiting}")
        self._threads[at].release()

    def waits(self, resource: str, member: int) -> bool:
        """Whether another member waits for a token."""
        return self._waits(RESOURCES.index(resource), member)

    def _wait(self, at: int, patience_s: float) -> bool:
        began = time.monotonic()
        free_since = 0.0
        mine = at * _RESOURCE + self.line.me
        self._lock(mine)
        try:
            while True:
                now = time.monotonic()
                free = not self._is_locked(self._token(at))
                free_since = (free_since or now) if free else 0.0
                if free and (self._is_my_turn(at) or now - free_since >= _YIELD_S) and self._lock(self._token(at)):
                    return True
                if now - began >= patience_s:
                    self._hung[at] = self._last(at)
                    return False
                left = _YIELD_S if free else _NAP_S
                if select.select([self._bells[at]], [], [], min(left, began + patience_s - now))[0]:
                    self._silence(at)
        finally:
            self._unlock(mine)

    def _is_hung(self, at: int) -> bool:
        """Whether the token is still where this member has given up waiting for it."""
        holder = self._hung[at]
        return holder is not None and holder == self._last(at) and self._is_locked(self._token(at))

    def _is_my_turn(self, at: int) -> bool:
        """Whether nobody waits who comes before this member."""
        for one in self._in_turn(at):
            if one == self.line.me:
                break
            if self._waits(at, one):
                return False
        return True

    def _in_turn(self, at: int) -> tuple[int, ...]:
        """All members, from the one after the last holder on."""
        members, last = self.line.members, self._last(at)[0]
        first = members.index(last) + 1 if last in members else 0
        return members[first:] + members[:first]

    def _last(self, at: int) -> tuple[int, int]:
        raw = os.pread(self._file, _HOLDER.size, at * _HOLDER.size)
        member, when = _HOLDER.unpack(raw.ljust(_HOLDER.size, b"\0"))
        return int(member), int(when)

    def _waits(self, at: int, member: int) -> bool:
        return self._is_locked(at * _RESOURCE + member)

    def _token(self, at: int) -> int:
        return at * _RESOURCE + _TOKEN + self.line.group

    def _lock(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def _is_locked(self, byte: int) -> bool:
        """By another process."""
        asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        return bool(struct.unpack(_LOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)

    def _silence(self, at: int) -> None:
        with contextlib.suppress(OSError):
            while self._bells[at].recv(16):
                pass
