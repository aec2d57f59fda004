"""Ways into a job that runs: a program beside it, its terminal, a port that it listens at. Bytes go both ways.

`exec`    runs `argv` where and as the job runs: its environment (and `env` on top), user, limits, GPUs; with a terminal
          if `tty`. It ends with the job. Whoever closes the channel before its end hangs up on it (SIGHUP).
`attach`  joins the terminal of a job that was launched with `tty`: what it showed lately comes first. Several may join.
`port`    connects to a TCP port at which the job itself listens on its (first) node, and to no other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

ChannelKind = Literal["exec", "attach", "port"]


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """What is asked for."""

    kind: ChannelKind
    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    tty: bool = False
    port: int = 0


@dataclass(frozen=True, slots=True)
class ChannelPart:
    """Some of what comes out: bytes (of a terminal and of a port all are `stdout`), or `end`, and how it ended.

    An end without code and signal is that of a connection, or nobody saw how the program ended.
    """

    kind: Literal["stdout", "stderr", "end"]
    data: bytes = b""
    exit_code: int | None = None
    signal: int | None = None


class Channel(Protocol):
    """One way in. One thread may read while another writes; `close` may be called from any."""

    def read(self, timeout_s: float) -> ChannelPart | None:
        """What comes next; None if nothing came in time. After the end there is only the end."""
        ...

    def write(self, data: bytes, timeout_s: float) -> int:
        """Input, as much as is taken in time: how many bytes. What nobody reads any more is dropped."""
        ...

    def end_input(self) -> None:
        """There will be no more of it."""
        ...

    def resize(self, rows: int, cols: int) -> None:
        """Say how large the user's terminal is. May be told to channels without one."""
        ...

    def close(self) -> None:
        """Let go. May be repeated."""
        ...
