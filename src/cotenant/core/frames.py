"""Messages in a row of bytes: a letter, four bytes of length (big-endian), the payload."""

from __future__ import annotations

HEAD_BYTES = 5
MOST_BYTES = 1 << 24


def frame(letter: str, payload: bytes) -> bytes:
    """One message."""
    return letter.encode() + len(payload).to_bytes(4, "big") + payload


class FrameReader:
    """Finds the messages in bytes that come in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """What is complete by now; a ValueError where it cannot be frames."""
        rest, found = self._rest + data, []
        while len(rest) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(rest[1:HEAD_BYTES], "big")
            if end > MOST_BYTES:
                raise ValueError("not frames")
            if len(rest) < end:
                break
            found.append((rest[:1].decode("latin-1"), rest[HEAD_BYTES:end]))
            rest = rest[end:]
        self._rest = rest
        return found
