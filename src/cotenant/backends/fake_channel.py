"""Ways into jobs of the fake world: a program that says what its script says, and echoes for terminals and ports."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from cotenant.backends.channels import ChannelPart


class FakeChannel:
    """What comes out is known from the start, or, where nothing is, it is what is put in, until there is no more."""

    def __init__(self, parts: Iterable[ChannelPart] = ()) -> None:
        self.sizes: list[tuple[int, int]] = []
        self._parts, self._news = deque(parts), threading.Condition()
        self._echoes = not self._parts

    def read(self, timeout_s: float) -> ChannelPart | None:
        """The next part; the end stays."""
        with self._news:
            if not self._news.wait_for(lambda: self._parts, timeout_s):
                return None
            return self._parts[0] if self._parts[0].kind == "end" else self._parts.popleft()

    def write(self, data: bytes, timeout_s: float) -> int:
        """Comes back, if this is an echo."""
        if self._echoes:
            self._put(ChannelPart("stdout", data))
        return len(data)

    def end_input(self) -> None:
        """An echo ends with it."""
        if self._echoes:
            self.close()

    def resize(self, rows: int, cols: int) -> None:
        """Remembered."""
        self.sizes.append((rows, cols))

    def close(self) -> None:
        """Comes to its end."""
        self._put(ChannelPart("end", exit_code=0))

    def _put(self, part: ChannelPart) -> None:
        with self._news:
            self._parts.append(part)
            self._news.notify_all()
