"""What it costs to put a task on a GPU: memory, distance from full use, and the tasks that are there (Horus).

Smaller is better. Passing 100 % costs more than staying below. The task counts with its largest utilisation, those
that are there with their averages; that is asymmetric by design. A GPU is feasible while memory leaves a margin and
few enough tasks sit there.
"""

from __future__ import annotations

from collections.abc import Sequence

MEMORY_WEIGHT = 1.3
OVERSHOOT_WEIGHT = 1.6
MARGIN_MIB = 500.0
MOST_TASKS = 3


def gpu_cost(
    residents: Sequence[tuple[float, float]],
    task_util: float,
    task_mib: float,
    capacity_mib: float,
    *,
    task_weight: float = 1.0,
    slowdown: float = 0.0,
) -> float:
    """Cost of a GPU with (average utilisation %, largest memory MiB) residents for a task of largest utilisation %.

    Where it is known how much the company slows down (`slowdown` above 0), that takes the place of the utilisation by
    which the GPU would be overfull: a slowdown of 1.4 counts like 140 %. A company that fills the GPU less than that,
    and whose slowdown is 1, keeps its distance from 100 %.
    """
    used = min(100.0, sum(min(util, 100.0) for util, _ in residents))
    over = used + task_util - 100.0
    if slowdown > 0:
        over = 100.0 * (slowdown - 1.0) if slowdown > 1 else min(over, 0.0)
    distance = OVERSHOOT_WEIGHT * over if over > 0 else -over
    memory = (sum(mib for _, mib in residents) + task_mib) / capacity_mib
    return MEMORY_WEIGHT * memory + distance / 100 + task_weight * len(residents)


def feasible(
    resident_mib: float, residents: int, task_mib: float, capacity_mib: float, margin_mib: float = MARGIN_MIB
) -> bool:
    """Whether a task may join: strictly more than the margin stays free, and there are fewer than three."""
    return capacity_mib - (resident_mib + task_mib) > margin_mib and residents < MOST_TASKS
