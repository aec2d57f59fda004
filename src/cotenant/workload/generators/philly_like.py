"""Jobs like those of Microsoft's Philly cluster (ATC'19): many small, a few long that hold the GPU-hours.

Sizes, durations by size, arrival cycles and tenants are fitted to the public log as reconstructed (109,570
jobs; durations sum all attempts); statuses and retries by size are the study's figures. Times are local.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Floats, Ints, Status
from cotenant.workload.generators.base import Generator
from cotenant.workload.generators.recipe import RECIPE_DEFAULTS, Recipe

_RETRY_SHARE = np.array([0.05, 0.38, 0.43, 0.32])


def _draw_attempts(
    rng: np.random.Generator, bucket: Ints, status: Ints, duration_s: Floats
) -> dict[int, tuple[float, ...]]:
    """Earlier attempts that failed, in whole seconds, as parts of the duration.

    A job that failed for good was tried three times, each about as long; of the others some failed once,
    mostly early. Retries per job by bucket then are 0.3, 1.0, 1.1, 1.1, as read off the study's figure.
    """
    first, second = rng.random(len(status)), rng.random(len(status))
    failed = np.flatnonzero((status == Status.FAILED) & (duration_s >= 10))
    cuts = np.sort(np.stack([first[failed], second[failed]]), axis=0) * 0.5 + np.array([[0.1], [0.4]])
    one = np.maximum(np.floor(cuts[0] * duration_s[failed]), 1)
    two = np.maximum(np.floor((cuts[1] - cuts[0]) * duration_s[failed]), 1)
    attempts: dict[int, tuple[float, ...]] = dict(
        zip(failed.tolist(), zip(one.tolist(), two.tolist(), strict=True), strict=True)
    )
    retried = (status != Status.FAILED) & (duration_s >= 10) & (first < _RETRY_SHARE[bucket])
    others = np.flatnonzero(retried)
    early = np.maximum(np.floor(0.9 * second[others] ** 3 * duration_s[others]), 1)
    attempts.update(zip(others.tolist(), ((x,) for x in early.tolist()), strict=True))
    return attempts


_RECIPE = Recipe(
    mix={1: 87.143, 2: 2.253, 4: 4.77, 8: 4.896, 12: 0.012, 16: 0.707, 24: 0.031, 32: 0.177, 64: 0.005, 128: 0.003},
    durations={
        1: ((0.128, 4.18, 0.15), (0.199, 4.61, 1.14), (0.393, 7.58, 0.79), (0.280, 8.45, 2.44)),
        3: ((0.498, 2.92, 0.35), (0.267, 4.98, 1.89), (0.235, 11.50, 1.36)),
        4: ((0.518, 5.90, 1.68), (0.055, 9.59, 0.15), (0.427, 11.43, 1.22)),
        8: ((0.367, 5.25, 1.51), (0.224, 8.81, 1.18), (0.039, 9.59, 0.15), (0.370, 11.91, 1.12)),
        16: ((0.244, 4.44, 0.92), (0.321, 7.55, 2.19), (0.435, 10.96, 1.38)),
        128: ((0.277, 4.15, 1.52), (0.297, 7.18, 1.08), (0.426, 10.51, 1.08)),
    },
    cap_s=5.2e6,
    hours=(
        (1.29, 0.99, 1.22, 1.16, 0.89, 1.14, 1.55, 1.89, 1.14, 0.92, 0.89, 0.75),
        (0.67, 0.64, 0.58, 0.66, 0.97, 0.73, 0.84, 0.78, 0.96, 0.9, 1.22, 1.17),
    ),
    days=(0.96, 1.11, 1.21, 1.21, 1.4, 0.57, 0.54),
    jobs_a_day=847.0,
    tenants={
        1: (0.518, 0.176, 0.14, 0.082, 0.024, 0.019, 0.016, 0.006, 0.015, 0.001, 0.004),
        4: (0.165, 0.262, 0.078, 0.043, 0.14, 0.115, 0.107, 0.055, 0.001, 0.007, 0.026),
        8: (0.101, 0.014, 0.151, 0.126, 0.315, 0.001, 0.015, 0.084, 0.001, 0.123, 0.066),
        128: (0.002, 0.108, 0.025, 0.226, 0.442, 0.001, 0.001, 0.056, 0.001, 0.102, 0.038),
    },
    users=319,
    user_skew=1.1,
    killed=(0.12, 0.15, 0.27, 0.25),
    failed=(0.14, 0.37, 0.42, 0.47),
    tilt=(1.0, 0.4),
    retries=_draw_attempts,
)

PHILLY_LIKE = Generator(
    "philly-like",
    "Microsoft Philly 2017: 87 % one-GPU jobs, heavy tail, retries, 11 tenants",
    "Jeon et al., ATC'19; msr-fiddle/philly-traces",
    _RECIPE.make,
    dict(RECIPE_DEFAULTS),
)
