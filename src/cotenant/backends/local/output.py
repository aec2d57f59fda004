"""What the keeper keeps of a job's output, and of when it came. Like the keeper it ships alone and starts fast."""

from __future__ import annotations

import os
import time

MARK_BYTES = 24
FINE_S, COARSE_S = 0.01, 1.0
_FREE_BYTES = MARK_BYTES << 12  # marks are fine at least so long, and as long as they are an eighth of the output
_MARKS_LIMIT = MARK_BYTES << 17


class Log:
    """Files of at most `limit` bytes, named by the number of their first byte: at least the newest `limit` are kept."""

    def __init__(self, stream: str, limit: int) -> None:
        self.stream, self.limit = stream, limit
        self.first, self.size, self.before = 0, 0, ""
        self.fd = self._open()

    def _path(self) -> str:
        return f"{self.stream}-{self.first}.log"

    def _open(self) -> int:
        return os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        """Begin a new file and let go of the one before the last."""
        full, oldest = self._path(), self.before
        self.first += self.size
        try:
            fd = self._open()
        except OSError:
            self.first -= self.size
            raise
        os.close(self.fd)
        self.fd, self.size, self.before = fd, 0, full
        if oldest:
            os.unlink(oldest)

    def write(self, data: bytes) -> None:
        """Append. On a full disk the text is dropped: a job must not hang because nobody can store its chatter."""
        while data:
            try:
                if self.size >= self.limit:
                    self._rotate()
                count = os.write(self.fd, data[: self.limit - self.size])
            except OSError:
                return
            self.size += count
            data = data[count:]

    def cut(self, unit: int) -> None:
        """Take back what a full disk left of a unit."""
        if rest := self.size % unit:
            os.ftruncate(self.fd, self.size - rest)
            self.size -= rest


class Marks:
    """When output came: (microseconds since 1970, next byte of stdout, next byte of stderr), 8 bytes each, big-endian.

    One is noted before the first byte, and before later ones if the last mark is 10 ms old; 1 s for a job that prints
    so little at a time that marks would pass an eighth of its output. The clock is set once, so it never goes back.
    """

    def __init__(self, out: Log, err: Log) -> None:
        self.out, self.err = out, err
        self.log: Log | None = None
        self.noted = 0
        self.began_s = time.time() - time.monotonic()
        self.last_s = 0.0

    def note(self) -> None:
        """Before each write to one of the two."""
        now_s = time.monotonic()
        ends = self.out.first + self.out.size, self.err.first + self.err.size
        fine = self.noted * MARK_BYTES < _FREE_BYTES + sum(ends) // 8
        if self.log is not None and now_s - self.last_s < (FINE_S if fine else COARSE_S):
            return
        try:
            if self.log is None:
                self.log = Log("times", _MARKS_LIMIT)
            self.last_s = now_s
            numbers = int((self.began_s + now_s) * 1e6), *ends
            self.log.write(b"".join(number.to_bytes(8, "big") for number in numbers))
            self.log.cut(MARK_BYTES)
            self.noted += 1
        except OSError:
            pass  # output without its time is better than none
