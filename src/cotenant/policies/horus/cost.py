"""What it costs to put a task on a GPU: memory, distance from full use, and the tasks that are there (Horus).

Smaller is better. Passing 100 % costs more than staying below. The task counts with its largest utilisation, those
that are there with their averages; that is asymmetric by design. A GPU is feasible while memory leaves a margin and
few enough tasks sit there.
"""

from __future__ import annotations

from cotenant.core.jit import entry

MEMORY_WEIGHT = 1.3
OVERSHOOT_WEIGHT = 1.6
MARGIN_MIB = 500.0
MOST_TASKS = 3


@entry
def gpu_cost(
    resident_util: float, resident_mib: float, residents: int, task_util: float, task_mib: float, capacity_mib: float,
    task_weight: float, slowdown: float,
) -> float:  # fmt: skip
    """Cost of a GPU for a task of largest utilisation %, beside residents with these sums of average utilisation %
    (each at most 100) and largest memory MiB.

    Where it is known how much the company slows down (`slowdown` above 0), that takes the place of the utilisation by
    which the GPU would be overfull: a slowdown of 1.4 counts like 140 %. A company that fills the GPU less than that,
    and whose slowdown is 1, keeps its distance from 100 %.
    """
    over = min(100.0, resident_util) + task_util - 100.0
    if slowdown > 0:
        over = 100.0 * (slowdown - 1.0) if slowdown > 1 else min(over, 0.0)
    distance = OVERSHOOT_WEIGHT * over if over > 0 else -over
    memory = (resident_mib + task_mib) / capacity_mib
    return MEMORY_WEIGHT * memory + distance / 100 + task_weight * residents


@entry
def feasible(resident_mib: float, residents: int, task_mib: float, capacity_mib: float, margin_mib: float) -> bool:
    """Whether a task may join: strictly more than the margin stays free, and there are fewer than three."""
    return capacity_mib - (resident_mib + task_mib) > margin_mib and residents < MOST_TASKS
