"""What stopping a job costs: seconds to save and restore it, charged when it starts again.

During that time the job holds its GPUs and makes no progress; the GPU-seconds are reported as lost.
Tiresias measured about 60 s per preemption on its testbed (62.1, 58.7 and 57.1 s in three runs).
"""

from __future__ import annotations

import numpy as np

from cotenant.compat import COSTS
from cotenant.core.errors import InputError
from cotenant.core.workload import Floats, Workload
from cotenant.workload.model_facts import preemption_costs_s
from cotenant.workload.stages import start_seconds_of

FLAT_S = 60.0
RESIZE_S = 2.0  # pause of an elastic job that changes its size: groups are built, parameters are sent
LOAD_S = 10.0  # until the new workers of a growing job are ready; the old ones train on


def restore_seconds(name: str, work: Workload) -> Floats:
    """Seconds per preemption of each job: `default`, `none`, `flat`, `startup`, a name of `compat` or a number.

    `startup` is what starting a model took on Muri's testbed, 60 s for models that it did not have.
    """
    if name == "none":
        return np.zeros(len(work))
    if name == "flat":
        return np.full(len(work), FLAT_S)
    if name in COSTS:
        return COSTS[name](work)
    if name == "default":
        known = preemption_costs_s(work)
        return np.where(np.isnan(known), FLAT_S, known)
    if name == "startup":
        known = start_seconds_of(work)
        return np.where(known > 0, known, FLAT_S)
    try:
        seconds = float(name)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < np.inf:
        names = ", ".join(("default", "none", "flat", "startup", *COSTS))
        raise InputError(f"--costs '{name}': write {names} or a number of seconds")
    return np.full(len(work), seconds)
