"""What kernels may call of NumPy, written as kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def search_right(values: Floats, wanted: float) -> int:
    """How many of the sorted values are at most the wanted one (`np.searchsorted(..., "right")`)."""
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


def search_left(values: Floats, wanted: float) -> int:
    """How many of the sorted values are below the wanted one (`np.searchsorted`)."""
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low
