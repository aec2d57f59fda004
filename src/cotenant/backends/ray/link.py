"""The service's end of the gateway: calls with time limits, the newest table of nodes, and news for whoever waits.

When the gateway ends, which it does when Ray has been away for long, it is started anew; until it is connected again,
and whenever Ray has not answered for a while, every call is `Unreachable`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from cotenant.backends.base import BackendError, Unreachable
from cotenant.backends.ray.gateway import RaySettings

STALE_S = 5.0  # after which a table of nodes says nothing any more
_AGAIN_S = 2.0  # between two tries to connect
_MARGIN_S = 2.0  # for the way through the gateway, beside what its call may take


class RayLink:
    """One gateway, for one or more handles. `table` is as Ray told it last."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings, self._lock = settings, threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number, self._closed = 0, False
        self._heard_s, self._said = 0.0, "it is being connected"
        self._connection: Connection | None = None
        self.table: list[dict[str, Any]] = []
        self.host, self.pid = "", 0
        self.news: list[Callable[[], object]] = []  # to be called when something may have changed
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ray-link", daemon=True)
        self._thread.start()

    # -- what is told ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            process, connection = self._start()
            with self._lock:
                self._connection = connection
                if self._closed:
                    connection.close()
            self._hear(connection)
            with self._lock:
                self._connection = None
                connection.close()
                waiting, self._waiting = self._waiting, {}
            for one in waiting.values():
                one.set_exception(Unreachable(f"Ray's gateway has ended: {self._said}"))
            process.wait()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _AGAIN_S)

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = socket.socketpair()
        path = ":".join(part for part in sys.path if part)
        env = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
        with theirs:
            argv = [sys.executable, "-m", "cotenant.backends.ray.gateway"]
            nowhere = subprocess.DEVNULL  # what matters is told over the socket
            process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=nowhere, stderr=nowhere, env=env, start_new_session=True
            )  # fmt: skip
        self.pid = process.pid
        connection = Connection(ours.detach())
        connection.send(self._settings)
        return process, connection

    def _hear(self, connection: Connection) -> None:
        while True:
            try:
                kind, number, what = connection.recv()
            except (EOFError, OSError):
                return
            if kind == "answer":
                with self._lock:
                    waits = self._waiting.pop(number, None)
                if waits is not None:
                    waits.set_result(what)
                continue
            if kind == "table":
                told = {row["id"]: row["facts"] for row in self.table}
                for row in what:  # an agent that a new gateway has not heard yet is as it was
                    row["facts"] = row["facts"] or (told.get(row["id"]) if row["alive"] else None)
                changed = what != self.table
                self.table, self._heard_s = what, time.monotonic()
            elif kind == "connected":
                self.host, changed = what, True
            else:
                changed = kind == "news"
                self._said = what if kind in ("failed", "trouble") else self._said
            if changed:
                self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for call in tuple(self.news):
            call()

    # -- what is asked ---------------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """The table, unless it is too old to be true."""
        if time.monotonic() - self._heard_s > STALE_S:
            where = self._settings.address or "the address that it found by itself"
            raise Unreachable(f"Ray at {where} does not answer ({self._said}): nothing is known of its jobs now")
        return self.table

    def await_nodes(self, enough: Callable[[list[dict[str, Any]]], bool], timeout_s: float) -> bool:
        """Wait until the table is as wanted."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self.table) and enough(self.table), timeout_s)

    def call(self, op: str, *given: Any, timeout_s: float = STALE_S) -> Any:
        """Have the gateway do something."""
        self.nodes()
        waits: Future[Any] = Future()
        with self._lock:
            if self._connection is None:
                raise Unreachable(f"Ray's gateway is not there: {self._said}")
            self._number += 1
            number = self._number
            self._waiting[number] = waits
            try:
                self._connection.send((number, op, given))
            except OSError as error:  # it has just died; whoever reads will find out, too
                del self._waiting[number]
                raise Unreachable(f"Ray's gateway has gone: {error}") from None
        try:
            done, what = waits.result(timeout_s + _MARGIN_S)
        except TimeoutError:
            with self._lock:
                self._waiting.pop(number, None)
            raise Unreachable(f"Ray did not answer within {timeout_s + _MARGIN_S:g} s") from None
        if not done:
            raise BackendError(f"Ray: {what}")
        return what

    def ask(self, requests: list[tuple[str, str, tuple[Any, ...]]], timeout_s: float) -> list[tuple[str, Any]]:
        """One act at each of several agents, at the same time; see `RayGateway.op_ask`."""
        found: list[tuple[str, Any]] = self.call("ask", requests, timeout_s, timeout_s=timeout_s) if requests else []
        return found

    def close(self) -> None:
        """End the gateway. Agents and jobs stay."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):  # wakes the thread that reads
                    os.set_blocking(self._connection.fileno(), True)
                    socket.socket(fileno=os.dup(self._connection.fileno())).shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
