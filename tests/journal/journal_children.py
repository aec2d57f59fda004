"""What runs in the processes that the crash and fencing tests start and kill, and the server they fork from.

The server has imported everything and has no threads, so that a start takes milliseconds and is safe.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg  # noqa: F401 - so that it is there before the fork
import sqlalchemy
from sqlalchemy import event

from cotenant.journal import Entry, JournalError, open_journal
from cotenant.journal.sql import SqlJournal

THREADS = 8


@dataclass(frozen=True)
class Child:
    """A running child and the pipe to it; `pipe.recv` raises EOFError once it is dead."""

    pid: int
    pipe: Connection

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """Starts functions of this module in processes of their own."""

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            paths = os.pathsep.join(path for path in sys.path if Path(path).is_dir())
            environment = {**os.environ, "PYTHONPATH": paths}
            self._server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._server.wait(timeout=20)

    def start(self, function: str, *args: Any) -> Child:
        ours, theirs = Pipe()
        socket.send_fds(self._socket, [json.dumps([function, *args]).encode()], [theirs.fileno()])
        theirs.close()
        return Child(int(self._socket.recv(32)), ours)


def serve(channel: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    while True:
        order, handles, _, _ = socket.recv_fds(channel, 10_000, 1)
        if not order:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            function, *args = json.loads(order)
            globals()[function](Connection(handles[0]), *args)
            os._exit(0)
        os.close(handles[0])
        channel.send(str(pid).encode())


def write_until_killed(acks: Connection, url: str, seed: int) -> None:
    """Append batches from several threads; report each (writer, call, size) once it is acknowledged."""
    journal = open_journal(url)
    gate = threading.Lock()

    def writer(me: int) -> None:
        rng = random.Random(seed * 1000 + me)
        for call in range(1_000_000):
            size = rng.choice((1, 1, 2, 7))
            journal.append(batch(seed, me, call, size))
            with gate:
                acks.send((me, call, size))

    threads = [threading.Thread(target=writer, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    while True:  # snapshots go on beside
        seq = journal.last_seq
        journal.save_snapshot(seq, str(seq).encode())


def batch(seed: int, me: int, call: int, size: int) -> list[Entry]:
    data = {"seed": seed, "writer": me, "call": call, "size": size, "pad": "x" * (call * 37 % 500)}
    return [Entry("k", f"{seed}-{me}", {**data, "i": i}) for i in range(size)]


def die_around_commit(acks: Connection, url: str, when: str) -> None:
    """Append once and be acknowledged, then die just before or just after the second commit."""
    journal = open_journal(url)
    assert isinstance(journal, SqlJournal)
    acks.send(journal.append(batch(0, 0, 0, 3)))
    engine = journal._engine
    if when == "before":
        event.listen(engine, "commit", lambda _connection: os.kill(os.getpid(), signal.SIGKILL))
    else:
        commit = engine.dialect.do_commit

        def commit_and_die(connection: sqlalchemy.PoolProxiedConnection) -> None:
            commit(connection)
            os.kill(os.getpid(), signal.SIGKILL)

        engine.dialect.do_commit = commit_and_die  # type: ignore[method-assign]
    journal.append(batch(0, 0, 1, 3))
    acks.send("never")


def hold(answers: Connection, url: str) -> None:
    """Open the journal, say so (or why not), and stay until killed or told to go."""
    try:
        journal = open_journal(url)
    except JournalError as error:
        answers.send((type(error).__name__, str(error)))
        return
    answers.send("open")
    answers.recv()
    journal.close()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
