"""Taking turns on one server: how many layers of jobs it carries, and what part of the time each of them gets."""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 1e-3  # of the time: whoever is kept from its GPUs by others' priority goes on when these are done


def shares(units: Sequence[tuple[int, float, float]], gpus: int, switch_s: float, quantum_s: float) -> list[float]:
    """Part of the time of each unit (GPUs, weight, priority) of a server, less what switching costs.

    Those of higher priority have what they can use before others. Among equals time goes by weight; what a unit
    cannot use, because it runs all the time already, goes to the others.
    """
    found = [1.0] * len(units)
    left = float(gpus)
    for level in sorted({priority for _, _, priority in units}, reverse=True):
        waits = [at for at, unit in enumerate(units) if unit[2] == level]
        if sum(units[at][0] for at in waits) <= left + 1e-9:
            left -= sum(units[at][0] for at in waits)
            continue
        while waits:
            each = max(left, 0.0) / sum(units[at][0] * units[at][1] for at in waits)
            whole = [at for at in waits if each * units[at][1] >= 1.0]
            for at in whole or waits:
                found[at] = 1.0 if whole else max(each * units[at][1], LEAST) * (1 - switch_s / quantum_s)
                left -= units[at][0] * min(each * units[at][1], 1.0)
            waits = [at for at in waits if at not in whole] if whole else []
        left = 0.0
    return found
