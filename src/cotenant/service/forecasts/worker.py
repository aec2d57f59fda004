"""The process beside the service that plays scenes forward, so that no decision waits for it: `python -m` this module.

Scenes come pickled on standard input, each after its length; what is foretold goes back the same way. It gives way to
everybody else, and ends with its service: at the end of its input.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, Any

from cotenant.service.forecasts.foretold import Foretold

_LENGTH = struct.Struct("<Q")
_NICE = 19


class Worker:
    """Its other end, in the service. One question at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def foretell(self, scene: Any, rest_s: float) -> tuple[dict[str, Foretold | None], float]:
        """Play a scene; when each job will end, and the seconds of a core that it took.

        Raises `OSError`, `EOFError` or `pickle.PicklingError` where that cannot be done."""
        asked = pickle.dumps((scene, rest_s), pickle.HIGHEST_PROTOCOL)
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, asked)
            found: tuple[dict[str, Foretold | None], float] = pickle.loads(_read(process.stdout))
        except (OSError, EOFError):
            self.close()
            raise
        return found

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """The next message; `EOFError` at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("the other end has gone")
    (size,) = _LENGTH.unpack(head)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("the other end has gone")
    return data


def main() -> None:
    """Answer until nobody asks any more."""
    from cotenant.core.jit_later import LATER
    from cotenant.service.planner.forecast import Patience, forecast

    with suppress(OSError):
        os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nobody else writes among the answers
    while True:
        try:
            asked = _read(sys.stdin.buffer)
        except EOFError:
            return
        began_s = time.process_time()
        LATER.switch()
        scene, rest_s = pickle.loads(asked)
        found, _ = forecast(scene, Patience(rest_s=rest_s))
        _write(answers, pickle.dumps((found, time.process_time() - began_s), pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
