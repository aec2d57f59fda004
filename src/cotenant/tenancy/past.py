"""Past use that fades: the mean of the GPUs that a tenant held, where use counts half after each half-life."""

from __future__ import annotations

import math

from cotenant.core.jit import entry


@entry
def decayed(past_gpus: float, held_gpus: float, elapsed_s: float, half_life_s: float) -> float:
    """Past use after some time in which as many GPUs were held all along; exact, in however many steps.

    It tends to what is held. 0 where only what is held now counts.
    """
    if half_life_s == math.inf:
        return 0.0
    kept = float(0.5 ** (elapsed_s / half_life_s))
    return kept * past_gpus + (1.0 - kept) * held_gpus
