"""Which kinds of jobs wait for their GPUs when they are started ahead of them, and at which place of their start.

Their runtimes have said so: others would begin to work on GPUs that are not theirs. So a kind is narrow: the same
command of the same user, from the same place, but for numbers (a seed, a learning rate).
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence

from cotenant.core.jobspec import JobSpec

MOST_KINDS = 1000  # the oldest are forgotten
_PRELUDE = {"cd", "export", "source", ".", "set", "ulimit", "umask", "module"}
_SHELL = set("|&<()`")  # what may run more programs
_SHELLS = {"bash", "sh", "zsh", "dash", "make", "xargs", "env", "nohup", "time"}
_LIBRARIES = ("PATH", "PYTHONPATH", "PYTHONHOME")  # of the environment: which runtime it is
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


class Barriers:
    """Places (`job`, `steps`: see `runtime`) by kind."""

    def __init__(self, rows: Mapping[str, Sequence[str]] | None = None) -> None:
        self._places = {kind: tuple(places) for kind, places in (rows or {}).items()}

    def __bool__(self) -> bool:
        return bool(self._places)

    def learn(self, kind: str, place: str) -> None:
        """Jobs of this kind wait there."""
        self._places[kind] = tuple(dict.fromkeys((*self._places.pop(kind, ()), place)))
        if len(self._places) > MOST_KINDS:
            del self._places[next(iter(self._places))]

    def places(self, kind: str) -> Sequence[str]:
        """Where jobs of a kind wait; nowhere if nobody knows."""
        return self._places.get(kind, ())

    def rows(self) -> dict[str, list[str]]:
        """Everything as plain data."""
        return {kind: list(places) for kind, places in self._places.items()}


def kind_of(spec: JobSpec, tenant: str, user: str) -> str:
    """The kind of a job; empty where its text runs more than one program, of which the runtime may be in one only."""
    command = _command(spec.run)
    if not command:
        return ""
    told = sorted(spec.env) if "$" in spec.run else [name for name in _LIBRARIES if name in spec.env]
    parts = tenant, user, spec.workdir, spec.image, spec.setup, *(f"{name}={spec.env[name]}" for name in told), *command
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _command(text: str) -> list[str]:
    """The words of a text, with a mark for each number; none unless it prepares the shell and runs one program."""
    text = re.sub(r"\d?>&\d", "", text).replace("&&", ";")
    try:
        split = [shlex.split(line, comments=True) for line in re.split(r"[\n;]", text)]
    except ValueError:
        return []
    lines = [words for words in split if words]
    if not lines or _SHELL & set(text):
        return []
    program = next((word for word in lines[-1] if "=" not in word), "sh").rpartition("/")[2]
    if any(words[0] not in _PRELUDE for words in lines[:-1]) or program in _SHELLS or program.endswith(".sh"):
        return []
    return ["=".join("#" if _NUMBER.fullmatch(p) else p for p in w.split("=")) for words in lines for w in words]
