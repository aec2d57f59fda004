"""What the suites for backends share: waiting for jobs, reading what they print, and a home for their runtimes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from cotenant.backends.base import Backend, LaunchSpec, LogReader, NodeInfo, Observed
from cotenant.runtime.protocol import Hello, JobMessage, Settings
from cotenant.runtime.server import RuntimeServer

PATIENCE_S = 30.0
_LOOK_S = 0.05


def seen(backend: Backend, key: str) -> Observed | None:
    """What the backend says of one key."""
    return next((one for one in backend.observe() if one.key == key), None)


def until(backend: Backend, key: str, *states: str, patience_s: float = PATIENCE_S) -> Observed:
    """Wait for one of the states."""
    deadline = time.monotonic() + patience_s
    while True:
        one = seen(backend, key)
        if one is not None and one.state in states:
            return one
        assert time.monotonic() < deadline, f"{key} is {one}, not {states}"
        backend.wait_change(5.0)


def printed(backend: Backend, log: LogReader, enough: Callable[[bytes], bool]) -> bytes:
    """Wait for output: all that is kept of it, once it is enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not enough(data := whole(log)):
        assert time.monotonic() < deadline, data
        backend.wait_change(_LOOK_S)
    return data


def whole(log: LogReader, size: int = 1 << 20) -> bytes:
    """All that is kept of a log, read in pieces of this size."""
    data, (place, _) = b"", log.span()
    while (part := log.read(place, size)).data:
        data, place = data + part.data, part.at + len(part.data)
    return data


class Home:
    """A service that does no more than listen. It takes whoever knows the secret."""

    def __init__(self, secret: str) -> None:
        self.secret, self.address = secret, ""
        self.heard: list[JobMessage] = []
        self._news = threading.Condition()

    def known(self, hello: Hello) -> Settings | None:
        """For the server: whether this caller is one of ours."""
        return Settings() if hello.token == self.secret else None

    def hear(self, hello: Hello, message: JobMessage) -> None:
        """For the server: what somebody says."""
        with self._news:
            self.heard.append(message)
            self._news.notify_all()

    def wait_for(self, kind: type[JobMessage]) -> JobMessage:
        """The first message of a kind."""
        with self._news:
            found = self._news.wait_for(lambda: [m for m in self.heard if isinstance(m, kind)], PATIENCE_S)
            assert found, self.heard
            return found[0]


@contextmanager
def at_home(addresses: Sequence[str], secret: str) -> Iterator[Home]:
    """Listen where a backend says, in a thread of its own."""
    home, events = Home(secret), asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()
    server = RuntimeServer(addresses, home.known, home.hear)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), events).result(PATIENCE_S)
        home.address = server.addresses[0]
        yield home
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), events).result(PATIENCE_S)
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()


class BackendKit:
    """Override the fixture `backend` and `reopen`; `workdir` where '/' will not do; and, so that faults are tried too,
    `cut_off`, `lost_node`, `ailing`, `tell_again` and `left`: tests of what a backend does not say how are skipped.

    `real_processes`: jobs are programs, and not scripts of the fake.
    """

    workdir = "/"
    real_processes = True

    @pytest.fixture
    def backend(self) -> Backend:
        """A fresh backend with at least one node of two GPUs."""
        raise NotImplementedError

    def reopen(self, backend: Backend) -> Backend:
        """Another handle on the same world."""
        raise NotImplementedError

    def cut_off(self, backend: Backend) -> AbstractContextManager[None]:
        """Within it the control plane is out of reach of this handle, as if stopped; jobs run on."""
        pytest.skip("this backend has no control plane that could be cut off")

    def lost_node(self, backend: Backend, name: str) -> AbstractContextManager[None]:
        """Within it a node is gone, with all that ran there, as after a crash; afterwards it is back, and up."""
        pytest.skip("nodes of this backend cannot be lost")

    def ailing(self, backend: Backend, name: str) -> AbstractContextManager[str]:
        """Within it something is wrong with a node, for a reason in these words; what runs there runs on."""
        pytest.skip("nodes of this backend are always well")

    def tell_again(self, backend: Backend, key: str) -> None:
        """Have the world tell once more, and late, all that it ever told of a key."""
        pytest.skip("nothing is told to this backend: it looks by itself")

    def left(self, backend: Backend) -> list[str]:
        """Whatever of jobs there is in the world: processes, records, groups, pods, reservations."""
        return [one.key for one in backend.observe()]

    def spec(self, key: str, script: str, **more: object) -> LaunchSpec:
        """A spec of this suite's working directory."""
        return LaunchSpec(key=key, job=key.rpartition("-")[0], workdir=self.workdir, script=script, **more)  # type: ignore[arg-type]

    def machines(self, backend: Backend) -> list[NodeInfo]:
        """One node with GPUs of each machine that is up."""
        up = [node for node in backend.nodes() if node.gpus and node.state == "up"]
        return list({node.address or node.name: node for node in up}.values())

    def two_machines(self, backend: Backend) -> tuple[NodeInfo, NodeInfo]:
        """For gangs."""
        found = self.machines(backend)
        if len(found) < 2:
            pytest.skip("this backend has one machine")
        return found[0], found[1]

    def gpu_node(self, backend: Backend) -> NodeInfo:
        """A node with two GPUs or more."""
        return next(node for node in backend.nodes() if node.gpus >= 2)
