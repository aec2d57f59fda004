"""What people say of GPU memory that gives (`core.memory`): jobs of themselves, and operators of their cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import InputError

DECLARED = ("gpu_mem", "gpu_mem_min", "gpu_mem_speeds")
"""What jobs may say: GiB at the peak and at least, and speeds in between."""
Speeds = tuple[tuple[float, float], ...]
"""Pairs of GiB granted and speed against the peak, both growing."""
BUS_GIB_S = 24.0  # what copies from pinned memory reach over PCIe 4.0 x16


@dataclass(frozen=True, slots=True)
class Oversubscription:
    """How far the peaks of jobs on one GPU may pass its memory, and what its bus carries."""

    cap: float
    bus_gib_s: float = BUS_GIB_S

    @classmethod
    def parse(cls, text: str) -> Oversubscription | None:
        """`1.5`, or `1.5@12` with the GiB per second of the bus; None for an empty text: peaks must fit."""
        if not text:
            return None
        words = text.split("@")
        try:
            cap, bus = float(words[0]), float(words[1]) if len(words) > 1 else BUS_GIB_S
        except ValueError:
            cap = bus = math.nan
        if len(words) > 2 or not (1 <= cap < math.inf and bus > 0):
            raise InputError(
                f"--oversubscribe {text}: write how many times a GPU's memory the peaks on it may be, 1 or more,"
                " and if wanted @ and the GiB per second of its bus: 1.5 or 1.5@12"
            )
        return cls(cap, bus)


def parse_speeds(pairs: Iterable[Sequence[Any]], where: str) -> Speeds:
    """Pairs of GiB and speed as people write them."""
    try:
        found = sorted((float(gib), float(speed)) for gib, speed in pairs)
    except (TypeError, ValueError):
        found = []
    speeds = [speed for _, speed in found]
    good = found and all(gib > 0 and 0 < speed <= 1 for gib, speed in found)
    if not good or speeds != sorted(speeds) or len({gib for gib, _ in found}) < len(found):
        raise InputError(
            f"{where}: write pairs of GiB and speed (above 0, at most 1), both growing, e.g. 10:0.6;13:0.9"
        )
    return tuple(found)
