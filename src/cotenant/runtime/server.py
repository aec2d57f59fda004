"""The service's end of the connections: accepts jobs, asks the owner who they are, and passes messages on.

Runs on the owner's asyncio loop. Knows nothing of scheduling: `authenticate` says whether a hello is genuine (and
compares tokens in constant time) and which settings to start from; `on_message` hears everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from types import TracebackType

from ._address import keep_alive, parse, short_name
from .protocol import (
    MAX_LINE,
    VERSION,
    Go,
    Hello,
    JobMessage,
    Message,
    Pause,
    ProtocolError,
    Refused,
    ServiceMessage,
    Set,
    Settings,
    Stop,
    TakeTurns,
    Welcome,
    decode,
    encode,
)

log = logging.getLogger("cotenant.runtime.server")

HELLO_TIMEOUT_S = 10.0
UNREAD_LIMIT = 1 << 20  # bytes a job may leave unread before it is cut off
MOST_STRANGERS = 256  # connections that have not said who they are: over TCP anybody can open some


class RuntimeServer:
    """Unix sockets, readable by their owner only, and TCP ports, to which the runtimes of running jobs connect.

    `addresses` are those asked for, and from `start` on those it really has: port 0 becomes one that is free.
    `on_message(hello, message)` is called on the loop for each message, first with the hello itself once the job has
    been welcomed (the moment to repeat a `stop` that is in force). Several processes of one job may be connected.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        authenticate: Callable[[Hello], Settings | None],
        on_message: Callable[[Hello, JobMessage], object],
    ) -> None:
        self.addresses = tuple(addresses)
        self._authenticate = authenticate
        self._on_message = on_message
        self._writers: dict[str, set[asyncio.StreamWriter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers = 0
        self._servers: list[asyncio.Server] = []
        self._inodes: dict[str, int] = {}

    async def start(self) -> None:
        """Listen at all addresses. A socket file left by an earlier process is replaced in one move."""
        try:
            self.addresses = tuple([await self._listen(address) for address in self.addresses])
        except BaseException:
            await self.stop()
            raise

    async def _listen(self, address: str) -> str:
        where = parse(address)
        if isinstance(where, tuple):
            sock = socket.create_server(where, family=socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
            self._servers.append(await asyncio.start_server(self._serve, sock=sock, limit=MAX_LINE))
            return f"{address.rpartition(':')[0]}:{sock.getsockname()[1]}"
        path = os.path.abspath(where)
        sock, self._inodes[path] = unix_socket(path)
        self._servers.append(await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE))
        return f"unix:{path}"

    async def stop(self) -> None:
        """Close the sockets and every connection; jobs go on and reconnect to whoever listens next."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        inodes, self._inodes = self._inodes, {}
        for path, inode in inodes.items():
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == inode:
                    os.unlink(path)

    async def __aenter__(self) -> RuntimeServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def connected(self) -> frozenset[str]:
        """Jobs with at least one process connected."""
        return frozenset(self._writers)

    def send(self, job_id: str, message: Set | Stop | Pause | Go | TakeTurns) -> bool:
        """Send to every process of a job; False when none is connected. Call it on the loop."""
        reached = [self._write(writer, message) for writer in self._writers.get(job_id, ())]
        return any(reached)

    def _write(self, writer: asyncio.StreamWriter, message: ServiceMessage) -> bool:
        if writer.transport.is_closing():
            return False
        if writer.transport.get_write_buffer_size() > UNREAD_LIMIT:
            writer.transport.abort()  # it does not read: it may come back when it does
            return False
        writer.write(encode(message))
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if (hello := await self._welcome(reader, writer)) is not None:
                await self._hear(hello, reader, writer)
        except ConnectionError:
            pass  # it was killed with words of ours unread: its end is seen elsewhere
        except (ProtocolError, OSError, TimeoutError) as error:
            log.warning("connection of a job dropped: %s", error)
        except asyncio.CancelledError:
            pass  # stop() ends connections; the streams module would report this as an error
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Hello | None:
        """Read the hello; answer and return it when it is genuine."""
        if self._strangers >= MOST_STRANGERS:
            return None
        sock = writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
        self._strangers += 1
        try:
            hello = await asyncio.wait_for(_receive(reader), HELLO_TIMEOUT_S)
        finally:
            self._strangers -= 1
        if not isinstance(hello, Hello):
            return None
        known = self._authenticate(hello) if hello.version == VERSION and hello.token.isascii() else None
        if known is None:
            wrong_version = hello.version != VERSION
            reason = f"protocol version {VERSION} is spoken here" if wrong_version else "unknown job or token"
            self._write(writer, Refused(reason))
            return None
        self._write(writer, Welcome(**known.given()))  # type: ignore[arg-type]
        return hello

    async def _hear(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.setdefault(hello.job, set()).add(writer)
        try:
            self._pass_on(hello, hello)
            while (message := await _receive(reader)) is not None:
                if isinstance(message, JobMessage) and not isinstance(message, Hello):
                    self._pass_on(hello, message)
        finally:
            writers = self._writers[hello.job]
            writers.discard(writer)
            if not writers:
                del self._writers[hello.job]

    def _pass_on(self, hello: Hello, message: JobMessage) -> None:
        try:
            self._on_message(hello, message)
        except Exception:
            log.exception("a %s message of job %s was not handled", message.type, hello.job)


async def _receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message of a known type; None at the end of the stream."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit
            raise ProtocolError("line too long") from None
        if not line.endswith(b"\n"):
            return None
        if (message := decode(line)) is not None:
            return message


def unix_socket(path: str, mode: int = 0o600, group: int = -1) -> tuple[socket.socket, int]:
    """A listening socket at path, and its inode. Nobody can connect before mode and group are right."""
    fresh = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_name(fresh) as name:
            sock.bind(name)
        os.chown(fresh, -1, group)
        os.chmod(fresh, mode)
        sock.listen(128)
        os.rename(fresh, path)
    except BaseException:
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    return sock, os.stat(path).st_ino
