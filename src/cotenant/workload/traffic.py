"""What jobs send: gradients in fp32 by model, and how long a step takes without the exchange.

What a log says of a job (`gradient_mb`, `step_s` of `Workload.extra`) holds before what is known of its model; for all
others the network has its usual values. Of the H200's models both are measured. Of Tiresias' ten and Gavel's types the
parameters are those of the published architectures, and a step takes what the profile says, or as long as usual.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.network import Network, Traffic
from cotenant.core.workload import Floats, Workload
from cotenant.workload.profiles import Profile
from cotenant.workload.profiles.h200 import find
from cotenant.workload.profiles.measured import steps

MILLIONS: dict[str, float] = {
    "vgg19": 143.7, "vgg16": 138.4, "vgg11": 132.9, "alexnet": 61.1, "resnet152": 60.2, "resnet101": 44.5,
    "resnet50": 25.6, "inception4": 42.7, "inception3": 23.8, "googlenet": 6.6, "resnet-18": 11.7, "resnet-50": 25.6,
}  # fmt: skip
"""Parameters of models that were not measured, by name without the batch size."""


def traffic_of(work: Workload, network: Network, profile: Profile) -> Traffic:
    """Gradients and steps of every job."""
    gradient = np.full(len(work), network.gradient_mb * 1e6)
    seconds = np.where(np.isnan(profile.steps_per_s), network.step_s, 1 / profile.steps_per_s)[profile.row]
    for code, name in enumerate(work.model.names):
        rows = work.model.code == code
        key, short = find(name), name.partition("(")[0].strip().lower()
        if key is not None:
            step = steps()[key]
            gradient[rows], seconds[rows] = 4 * step.parameters, max(step.host_s, step.gpu_s)
        elif short in MILLIONS:
            gradient[rows] = 4e6 * MILLIONS[short]
    return Traffic(_said(work, "gradient_mb", gradient, 1e6), _said(work, "step_s", seconds, 1.0))


def _said(work: Workload, column: str, usual: Floats, unit: float) -> Floats:
    """What jobs say themselves, where they do."""
    if column not in work.extra:
        return usual
    said = np.asarray(work.extra[column], np.float64) * unit
    return np.where(np.isnan(said), usual, said)
