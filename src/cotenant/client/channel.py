"""A way into a running job, from the client's side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from cotenant.client.errors import Unreachable
from cotenant.core.errors import CotenantError
from cotenant.core.frames import FrameReader

_PART = 256 << 10


class ClientChannel:
    """Read by one thread with `output`, written by another. `exit_code` is known at the end; None for a connection.

    A program that a signal ended has 128 and the signal's number, as in a shell.
    """

    def __init__(
        self, send: Callable[..., Any], stream: Callable[[str], AbstractContextManager[Iterator[bytes]]], path: str
    ) -> None:
        self._send, self._stream, self.path = send, stream, path
        self.exit_code: int | None = None
        self.ended = False

    def output(self) -> Iterator[tuple[str, bytes]]:
        """`stdout` or `stderr`, and some bytes of it, until the end. Leaving it hangs up."""
        reader = FrameReader()
        with self._stream(self.path) as parts:
            for part in parts:
                for letter, payload in reader.feed(part):
                    if letter == "Q":
                        self._end(payload.decode())
                        return
                    if letter == "F":
                        raise CotenantError(payload.decode())
                    if letter in "OE":
                        yield "stdout" if letter == "O" else "stderr", payload
        raise Unreachable("the connection to the service was lost")

    def _end(self, how: str) -> None:
        word, _, number = how.partition(" ")
        self.ended = True
        if number:
            self.exit_code = int(number) + (128 if word == "signal" else 0)

    def write(self, data: bytes) -> None:
        """Input; returns when it is taken."""
        while data and not self.ended:
            data = data[self._put(data[:_PART]) :]

    def end_input(self) -> None:
        """There will be no more."""
        self._put(b"", end="true")

    def resize(self, rows: int, cols: int) -> None:
        """How large the terminal is."""
        self._send("POST", f"{self.path}/size", params={"rows": rows, "cols": cols})

    def close(self) -> None:
        """Hang up."""
        self._send("DELETE", self.path)

    def _put(self, data: bytes, **params: str) -> int:
        headers = {"Content-Type": "application/octet-stream"}
        taken: int = self._send("POST", f"{self.path}/input", content=data, params=params, headers=headers).json()[
            "taken"
        ]
        return taken
