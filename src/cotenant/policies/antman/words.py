"""Why a job of AntMan waits, in words."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from cotenant.core.plan import Why
from cotenant.core.view import View
from cotenant.core.workload import Ints


class QueueStanding(NamedTuple):
    """How those stand who wait after a decision."""

    reserved: Mapping[int, list[int]]  # GPUs that guaranteed jobs hold already
    later: Set[int]  # who is opportunistic
    quota_left: Ints
    busy_limit: float
    most_gpus: int
    after_s: float


def answers(standing: QueueStanding, view: View) -> Why:
    """Whether it is within its quota and holds a part of its gang, or is opportunistic and nobody leaves enough."""
    rows, gpus, tenant, priority = view.rows, view.gpus, view.tenant, view.priority
    after_s = standing.after_s

    def why(row: int) -> str:
        at = int(np.flatnonzero(rows == row)[0])
        gang = int(gpus[at])
        if row in standing.reserved:
            return (
                f"it is guaranteed, and holds {len(standing.reserved[row])} of its {gang} GPUs until the rest is free"
            )
        if row not in standing.later:
            return f"it is guaranteed, and guaranteed jobs hold every GPU; it waits for {gang} of theirs"
        over = f"its tenant has {standing.quota_left[tenant[at]]} GPUs of its quota left and it needs {gang}"
        said = f"it is opportunistic: {over if priority[at] >= 0 else 'its priority is negative'}"
        if standing.most_gpus and gang > standing.most_gpus:
            return f"{said}, and opportunistic jobs may have {standing.most_gpus} at most"
        wait = f", or its quota is expected within {after_s:g} s" if after_s else ""
        return f"{said}; too few GPUs are less than {standing.busy_limit:.0%} busy with memory to spare{wait}"

    return why
