"""The service's end of a visit at a keeper."""

from __future__ import annotations

import socket
import threading

from cotenant.backends.channels import ChannelPart
from cotenant.backends.local.channels import KeeperChannel
from cotenant.core.frames import FrameReader, frame
from cotenant.testing.backend_kit import PATIENCE_S


def test_input_that_a_busy_keeper_takes_late_arrives_whole_and_ends() -> None:
    """The last words have no successor that could push them on: reading does."""
    near, far = socket.socketpair()
    channel, taken, came = KeeperChannel(near, frame("X", b"")), 0, b""
    while count := channel.write(b"x" * 100_000, 0.0):
        taken += count
    channel.end_input()

    def keeper() -> None:
        nonlocal came
        reader = FrameReader()
        while True:
            for letter, payload in reader.feed(far.recv(1 << 16)):
                came += payload
                if letter == "I" and not payload:
                    far.sendall(frame("Q", b"code 3"))
                    return

    thread = threading.Thread(target=keeper, daemon=True)
    thread.start()
    assert channel.read(PATIENCE_S) == ChannelPart("end", exit_code=3)
    thread.join()
    assert len(came) == taken
    channel.close()
    far.close()
