"""A private PostgreSQL server for tests: own directory, own port, gone with the test process."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from glob import glob
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest

READY = b"ready to accept connections"


def find_binaries() -> Path:
    """The folder with `initdb` and `postgres`. Absent: a failure in CI, a skip elsewhere."""
    found = [Path(p).resolve().parent for p in (shutil.which("initdb"),) if p]
    found += [Path(p) for p in sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    text = "PostgreSQL is not installed (no initdb on PATH or in /usr/lib/postgresql/*/bin)"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{text}: the journal must be tested on it; apt install postgresql")
    pytest.skip(text)


class PostgresServer:
    """Starts on entering and stops on leaving; each `new_schema` holds a journal of its own."""

    def __init__(self, binaries: Path, fsync: str = "off") -> None:
        self._binaries, self._fsync = binaries, fsync
        self._names = (f"journal_{i}" for i in itertools.count())

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="cotenant-pg-"))
        as_user = ["setpriv", "--pdeathsig=SIGQUIT"] if shutil.which("setpriv") else []
        if os.geteuid() == 0:  # the server refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self._home, user.pw_uid, user.pw_gid)
            as_user += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        data = self._home / "data"
        init = [*as_user, self._binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run(init, check=True, capture_output=True, cwd=self._home)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self._home}", f"fsync={self._fsync}"]
        self._command = [*as_user, self._binaries / "postgres", "-D", data, "-p", str(self.port)]
        self._command += [word for option in options for word in ("-c", option)]
        self.start()
        return self

    def start(self) -> None:
        """Start the server, for the first time or again."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, cwd=self._home)
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if READY in line:  # from now on keep the pipe empty, or the server would block on it
                drain = threading.Thread(target=deque, args=(self._process.stderr, 0), daemon=True)
                drain.start()
                return
        raise RuntimeError(f"PostgreSQL did not start: {b''.join(said).decode()}")

    def stop(self) -> None:
        """End the server as a crash of its machine would; `start` brings it back with all that was committed."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=20)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement as the administrator."""
        address = f"host={self._home} port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_schema(self) -> str:
        """The address of an empty schema."""
        name = next(self._names)
        self.execute(f"CREATE SCHEMA {name}")
        options = f"options=-csearch_path%3D{name}"
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?{options}"


def cut(postgres: PostgresServer, url: str) -> None:
    """End every connection of that schema's journal, as a restart of the server would."""
    schema = url.partition("%3D")[2]
    postgres.execute(
        "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l WHERE l.locktype = 'advisory'"
        f" AND l.objid = CAST(CAST(hashtext('{schema}') AS bigint) & 4294967295 AS oid)"
    )
