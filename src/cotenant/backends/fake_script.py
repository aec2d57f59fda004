"""How a job of the fake world behaves, read from its own `run` text so that the same specs run on a real backend.

Words that it knows: `sleep N`, `sleep infinity`, `exit N`, `kill -N $$`, `trap '' TERM`, `echo TEXT` (with variables
such as `$COTENANT_KEY`; also to `>&2`). What begins with `/no/` cannot be started; the rest takes no time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cotenant.backends.base import LaunchSpec, Stream

_ROUNDING_S = 1e-5  # a clock that counts from 1970 has no more digits


@dataclass(frozen=True, slots=True)
class Script:
    """How a job behaves when nobody disturbs it. `stubborn` ones do not hear SIGTERM.

    `output` is what it prints: after how long, where, what. `never` says why it cannot be started, if so.
    """

    duration_s: float = 0.0
    exit_code: int = 0
    signal: int | None = None
    stubborn: bool = False
    oom: bool = False
    start_s: float = 0.0
    output: tuple[tuple[float, Stream, str], ...] = ()
    never: str = ""


def read_script(spec: LaunchSpec) -> Script:
    """The shell words that the fake understands."""
    text = spec.script if spec.argv is None else " ".join(spec.argv)
    duration_s, code, number, stubborn, never = 0.0, 0, None, False, ""
    output: list[tuple[float, Stream, str]] = []
    for words in (part.split() for part in re.split(r"[;\n]|&&", text)):
        match words:
            case ["sleep", amount]:
                duration_s += float("inf") if amount == "infinity" else float(amount)
            case ["exit", value]:
                code = int(value)
                break
            case ["kill", flag, "$$"]:
                number = int(flag.lstrip("-"))
                break
            case ["trap", "''", "TERM"]:
                stubborn = True
            case ["echo", *said, ">&2"]:
                output.append((duration_s, "stderr", " ".join(said) + "\n"))
            case ["echo", *said]:
                output.append((duration_s, "stdout", " ".join(said) + "\n"))
            case [program, *_] if program.startswith("/no/"):
                never = f"{program}: No such file or directory"
    return Script(duration_s, code, number, stubborn, output=tuple(output), never=never)


@dataclass(slots=True)
class Output:
    """What one attempt prints (after how long, stream, bytes), how long it has run (below 0: not at all), and since."""

    lines: list[tuple[float, Stream, bytes]]
    limits: dict[Stream, int]
    ran_s: float = -math.inf
    began_s: float = 0.0

    def so_far(self, stream: Stream, ran_s: float) -> tuple[int, bytes]:
        """The first byte that is kept and all from there on."""
        whole = b"".join(text for at_s, to, text in self.lines if to == stream and at_s <= ran_s + _ROUNDING_S)
        first = max(0, len(whole) - self.limits[stream])
        return first, whole[first:]
