"""Tasks like those of Alibaba's PAI (v2020): odd GPU counts, and most GPU-hours in very wide tasks.

Sizes, durations by size and arrival cycles are fitted to a 60,105-task sample of the public table
(fractions of a GPU rounded up to one, cut at 48 h, start times in place of submissions). Users follow a
power law, and a quarter of the tasks fails (a round figure: the sample holds terminated tasks only).
"""

from __future__ import annotations

from cotenant.workload.generators.base import Generator
from cotenant.workload.generators.recipe import RECIPE_DEFAULTS, Recipe

_RECIPE = Recipe(
    mix={
        1: 77.014, 2: 3.078, 3: 1.504, 4: 1.413, 5: 1.709, 6: 0.245, 7: 0.052, 8: 1.196, 10: 4.115, 12: 0.802,
        15: 0.423, 16: 0.923, 18: 0.082, 20: 2.13, 25: 0.631, 28: 0.173, 30: 0.928, 32: 0.204, 40: 0.782,
        50: 1.515, 60: 0.173, 64: 0.138, 80: 0.203, 100: 0.393, 150: 0.04, 200: 0.087,
    },
    durations={
        1: ((0.2146, 3.655, 0.47), (0.3717, 5.655, 0.86), (0.4128, 8.367, 1.32), (0.0009, 12.032, 0.08)),
        4: ((0.0978, 4.064, 0.26), (0.6767, 6.039, 1.35), (0.2216, 9.117, 1.33), (0.0039, 12.032, 0.08)),
        8: ((0.2012, 4.437, 0.37), (0.1785, 5.645, 0.59), (0.6146, 8.522, 1.43), (0.0057, 12.032, 0.08)),
        16: ((0.4059, 5.583, 0.79), (0.1858, 7.268, 0.36), (0.4056, 8.771, 1.17), (0.0027, 12.032, 0.08)),
        40: ((0.1720, 5.053, 0.69), (0.5121, 7.788, 1.18), (0.3126, 8.985, 1.11), (0.0033, 12.032, 0.08)),
        60: ((0.1523, 5.692, 0.45), (0.1189, 7.150, 0.27), (0.7278, 8.054, 1.60), (0.0010, 12.032, 0.08)),
        400: ((0.0939, 3.393, 0.18), (0.4819, 7.336, 1.65), (0.4184, 9.754, 0.94), (0.0058, 12.032, 0.08)),
    },
    cap_s=172_800.0,
    hours=(
        (0.63, 0.83, 0.92, 0.97, 1.21, 0.93, 0.84, 1.18, 1.29, 1.06, 1.0, 1.01),
        (1.11, 1.04, 1.14, 1.14, 0.95, 0.93, 0.87, 0.69, 0.7, 1.49, 1.09, 0.99),
    ),
    days=(1.11, 1.03, 1.06, 1.12, 1.0, 0.83, 0.85),
    jobs_a_day=943.0,
    tenants={400: (0.35, 0.2, 0.13, 0.1, 0.07, 0.05, 0.04, 0.03, 0.02, 0.01)},
    users=1000,
    user_skew=1.0,
    killed=(0.0, 0.0, 0.0, 0.0),
    failed=(0.25, 0.25, 0.25, 0.25),
    tilt=(0.0, 0.5),
)  # fmt: skip

PAI_LIKE = Generator(
    "pai-like",
    "Alibaba PAI 2020: odd GPU counts, 85 % of GPU-hours in tasks over 8 GPUs",
    "Weng et al., NSDI'22; alibaba/clusterdata v2020",
    _RECIPE.make,
    dict(RECIPE_DEFAULTS),
)
