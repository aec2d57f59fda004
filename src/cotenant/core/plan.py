"""The whole target state that a policy asks for: which jobs run next, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

Slices = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Row of every job that should run -> its (node, GPUs) pairs. Whoever is missing does not run."""

    run: dict[int, Slices] = field(default_factory=dict)
