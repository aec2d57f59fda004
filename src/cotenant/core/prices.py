"""What a GPU costs per hour, in dollars; published list prices, for objectives that weigh work against money.

V100, P100 and K80 as used in the Gavel paper (spot prices of its time); the others are typical on-demand prices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core.workload import Floats

USD_PER_GPU_HOUR = {
    "v100": 0.74,
    "p100": 0.43,
    "k80": 0.135,
    "t4": 0.35,
    "l40s": 1.10,
    "a100": 1.80,
    "h100": 2.70,
    "h200": 3.50,
}


def prices_of(gpu_types: Sequence[str]) -> Floats:
    """Price of each type; 1 for types that are not listed."""
    return np.array([USD_PER_GPU_HOUR.get(name.lower(), 1.0) for name in gpu_types], np.float64)
