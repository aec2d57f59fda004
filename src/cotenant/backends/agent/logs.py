"""Output that lies on the nodes where it was written, read through their agents.

The output of a gang is one row of bytes, made of whole lines of its machines in the order in which somebody first asked
for them: that order is written down in the link's store, so that a byte has the same number ever after.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cotenant.backends.base import LogMark, LogPart, Stream
from cotenant.backends.channels import ChannelPart

Ask = Callable[..., list[Any]]
"""`ask(names, act, *given)`: the answers of these nodes' agents, None of those that are gone."""
_MOST_PIECES = 10_000


class AgentLog:
    """One stream of one attempt. `names` gives its nodes, none where nothing is known of it."""

    def __init__(
        self, key: str, stream: Stream, names: Callable[[], Sequence[str]], ask: Ask, order: PieceOrder
    ) -> None:  # fmt: skip
        self.key, self._stream, self._names, self._ask, self._order = key, stream, names, ask, order

    def span(self) -> tuple[int, int]:
        """The oldest byte that is kept, and the end."""
        names = self._names()
        if len(names) > 1:
            pieces = self._pieces(names)
            return (pieces[0][0], pieces[-1][0] + pieces[-1][3]) if pieces else (0, 0)
        found = self._ask(names, "log_state", self.key, self._stream)
        return (found[0][0], found[0][1]) if found and found[0] is not None else (0, 0)

    def read(self, offset: int, size: int) -> LogPart:
        """Bytes from an offset on; of a gang those of one machine at a time."""
        names = self._names()
        if len(names) <= 1:
            found = self._ask(names, "log_read", self.key, self._stream, offset, size)
            return LogPart(*found[0]) if found and found[0] is not None else LogPart(offset, b"")
        for at, rank, first, length in self._pieces(names):
            if offset < at + length:
                begin = max(offset - at, 0)
                want = min(size, length - begin)
                found = self._ask([names[rank]], "log_read", self.key, self._stream, first + begin, want)
                if found[0] is not None and found[0][1]:
                    return LogPart(at + found[0][0] - first, found[0][1][:want])
        return LogPart(offset, b"")

    def _pieces(self, names: Sequence[str]) -> list[tuple[int, int, int, int]]:
        """Number of the first byte, rank, its place in the rank's own log, length: what is known by now."""
        states = self._ask(names, "log_state", self.key, self._stream, True)
        return self._order.extended(self.key, self._stream, [state[:2] if state else (0, 0) for state in states])

    def ended(self) -> bool:
        """Whether nothing of the attempt runs any more."""
        states = self._ask(self._names(), "log_state", self.key, self._stream)
        return all(state is None or state[2] for state in states)


class PieceOrder:
    """The order of the pieces of gangs' output, in the link's store."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self._lock = call, threading.Lock()

    def extended(
        self, key: str, stream: Stream, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, int]]:  # fmt: skip
        """The pieces, with what the ranks have written since; `spans` are what they keep."""
        with self._lock:  # one service reads, by many threads
            return self._extended(f"order/{key}/{stream}", spans)

    def _extended(self, name: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        data = self._call("get", name)
        pieces = [tuple(piece) for piece in json.loads(data)] if data else []
        known, at = len(pieces), sum(pieces[-1][::3]) if pieces else 0
        for rank, (first, end) in enumerate(spans):
            begin = max((piece[2] + piece[3] for piece in pieces if piece[1] == rank), default=first)
            if end > begin:
                pieces.append((at, rank, begin, end - begin))
                at += end - begin
        if len(pieces) > known:
            self._call("put", name, json.dumps(pieces[-_MOST_PIECES:]).encode(), True)
        kept = [_cut(piece, spans[piece[1]][0]) for piece in pieces]
        return [piece for piece in kept if piece[3] > 0]

    def drop(self, key: str) -> None:
        """The output is gone."""
        for stream in ("stdout", "stderr"):
            self._call("drop", f"order/{key}/{stream}")


def _cut(piece: tuple[int, ...], oldest: int) -> tuple[int, int, int, int]:
    """Without what its machine has rotated away."""
    at, rank, first, length = piece
    gone = min(max(oldest - first, 0), length)
    return at + gone, rank, first + gone, length - gone


class AgentTimes:
    """When the output of a job on one node came. Of gangs that is not known."""

    def __init__(self, key: str, names: Callable[[], Sequence[str]], ask: Ask) -> None:
        self._key, self._names, self._ask = key, names, ask

    def marks(self, at_s: float, stdout: float, stderr: float, most: int) -> list[LogMark]:
        """From the last mark that lies at or before all three on."""
        names = self._names()
        found = self._ask(names, "marks", self._key, at_s, stdout, stderr, most) if len(names) == 1 else []
        return [LogMark(*mark) for mark in found[0]] if found and found[0] is not None else []


class AgentChannel:
    """A way into a job, through the agent of its first node."""

    def __init__(self, number: int, ask: Callable[..., Any]) -> None:
        self._number, self._ask, self._open = number, ask, True

    def read(self, timeout_s: float) -> ChannelPart | None:
        """See the protocol."""
        found: ChannelPart | None = self._ask("channel_read", self._number, timeout_s)
        return found

    def write(self, data: bytes, timeout_s: float) -> int:
        """See the protocol."""
        return int(self._ask("channel_write", self._number, data, timeout_s))

    def end_input(self) -> None:
        """See the protocol."""
        self._ask("channel_do", self._number, "end_input")

    def resize(self, rows: int, cols: int) -> None:
        """See the protocol."""
        self._ask("channel_do", self._number, "resize", rows, cols)

    def close(self) -> None:
        """See the protocol."""
        if self._open:
            self._open = False
            self._ask("channel_do", self._number, "close")
