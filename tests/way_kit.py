"""The way of a job through the code: which modules of ours are on the call stack when something happens to it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
_STEP = re.compile(r"^\d+\. `([\w.]+)`")


def written(title: str) -> list[str]:
    """The numbered functions below a heading of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    part = text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [found.group(1) for line in part.splitlines() if (found := _STEP.match(line))]


@dataclass(frozen=True, slots=True)
class Milestone:
    """Something that happens to a job: the first call of a function, of the book with a record of this kind."""

    function: str
    kind: str = ""


@dataclass
class Tracer:
    """Stacks of calls at milestones, in all threads that begin while it is at work."""

    milestones: Sequence[Milestone]
    stacks: dict[Milestone, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._wanted: dict[str, list[Milestone]] = {}
        for milestone in self.milestones:
            self._wanted.setdefault(milestone.function, []).append(milestone)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_globals.get("__name__", "").startswith("cotenant."):
            return
        for milestone in self._wanted.get(_name(frame), ()):
            kind = frame.f_locals["record"].kind if milestone.kind else ""
            if milestone not in self.stacks and kind == milestone.kind:
                self.stacks[milestone] = _stack(frame)

    def way(self, milestones: Sequence[Milestone], first: str = "") -> list[str]:
        """One function per module, that by which the way enters it first; what comes before `first` is left out."""
        found: dict[str, str] = {}
        for milestone in milestones:
            stack = self.stacks[milestone]
            if first in stack:
                stack = stack[stack.index(first) :]
            for name in stack:
                found.setdefault(_module(name), name)
        return list(found.values())


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def _module(name: str) -> str:
    """The part of a name that is written small."""
    parts = name.split(".")
    return ".".join(parts[: next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)])


def _stack(frame: FrameType | None) -> list[str]:
    """Our functions on the stack, the outermost first; a function inside another counts as that one."""
    found: list[str] = []
    while frame is not None:
        name = _name(frame).split(".<locals>")[0]
        if name.startswith("cotenant.") and "<" not in name:
            found.append(name.removeprefix("cotenant."))
        frame = frame.f_back
    return found[::-1]
