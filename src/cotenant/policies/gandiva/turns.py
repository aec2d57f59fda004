"""Taking turns on one server: how many layers of jobs it carries, and what part of the time each of them gets."""

from __future__ import annotations

import math


def height(slots: int, gpus: int) -> int:
    """How many layers of jobs a server carries; above 1 it is over-subscribed."""
    return math.ceil(slots / gpus) if gpus else 0


def fair_share(slots: int, gpus: int, switch_s: float, quantum_s: float) -> float:
    """Part of the time in which each job of a server runs, less what switching costs."""
    if slots <= gpus:
        return 1.0
    return gpus / slots * (1 - switch_s / quantum_s)
