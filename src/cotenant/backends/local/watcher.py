"""One place to sleep: the keepers' notices through a named pipe, and the deaths of processes through pidfds."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from pathlib import Path


class Watcher:
    """Handles on what may change. One thread waits; the rest may be called from any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._notices = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._notices, select.EPOLLIN)
        self._lock = threading.Lock()
        self._watched: dict[int, int] = {}  # pid -> pidfd
        self.children: set[int] = set()  # keepers that we started and must reap

    def fileno(self) -> int:
        """Readable when `wait` would not sleep."""
        return self._epoll.fileno()

    def wake(self) -> None:
        """End a wait, the present or the next one."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._notices, b"w")

    def wait(self, timeout_s: float | None) -> bool:
        """True when something was heard."""
        ready = {fd for fd, _ in self._epoll.poll(timeout_s)}
        if self._notices in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._notices, 1 << 16)
        with self._lock:
            for pid in [pid for pid, fd in self._watched.items() if fd in ready]:
                self._unwatch(pid)
        self.reap()
        return bool(ready)

    def watch(self, pid: int) -> None:
        """Hear of this process's end."""
        with self._lock:
            if pid in self._watched:
                return
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                self.wake()  # it is gone already, which is a change
                return
            self._watched[pid] = handle
            self._epoll.register(handle, select.EPOLLIN)

    def adopt(self, pid: int) -> None:
        """Watch a child of ours, and reap it when it has ended."""
        self.children.add(pid)
        self.watch(pid)

    def reap(self) -> None:
        """Take the status of children that ended."""
        for pid in list(self.children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self.children.discard(pid)

    def close(self) -> None:
        """Let go of all handles."""
        self.reap()
        for pid in list(self._watched):
            self._unwatch(pid)
        self._epoll.close()
        os.close(self._notices)

    def _unwatch(self, pid: int) -> None:
        handle = self._watched.pop(pid)
        self._epoll.unregister(handle)
        os.close(handle)
