"""Whether steps wait for the GPU or for the host."""

from __future__ import annotations

import math

import pytest

from cotenant.core.bound import bound_to_gpu, bound_to_host


@pytest.mark.parametrize(
    ("busy", "bound"), [(0.05, 1.0), (0.79, 1.0), (0.8, 0.2), (0.93, 0.07), (1.0, 0.0), (math.nan, 1.0)]
)
def test_steps_that_keep_the_gpu_busy_hardly_wait_for_the_host(busy: float, bound: float) -> None:
    assert bound_to_host(busy) == pytest.approx(bound)
    assert bound_to_gpu(busy) is (bound < 1)
