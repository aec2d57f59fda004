"""Whether a waiting job should share with a running one (SJF-BSBF, IWQoS'24, theorem 1).

a waits and would take L_a seconds alone, b runs and has L_b left alone; beside each other they take xi_a and xi_b
times as long. Starting a at once or after b are the only two choices that can be best: the mean completion time is
linear in between. Both means count from now; after one ends the other goes on at full speed. A tie means wait.
"""

from __future__ import annotations

from cotenant.core.jit import entry

TIE = 1e-9  # relative


@entry
def shared_mean(l_a: float, l_b: float, xi_a: float, xi_b: float) -> float:
    """Mean completion time of the two when a starts now."""
    h_a, h_b = xi_a * l_a, xi_b * l_b
    if h_a >= h_b:
        return l_a / 2 + (1 - 1 / (2 * xi_a)) * h_b
    return l_b / 2 + (1 - 1 / (2 * xi_b)) * h_a


@entry
def waiting_mean(l_a: float, l_b: float) -> float:
    """Mean completion time of the two when a waits for b."""
    return l_b + l_a / 2


@entry
def pays(l_a: float, l_b: float, xi_a: float, xi_b: float) -> bool:
    """Whether sharing now lowers the mean; equality, up to rounding, means wait."""
    wait = waiting_mean(l_a, l_b)
    return bool(shared_mean(l_a, l_b, xi_a, xi_b) < wait - TIE * wait)
