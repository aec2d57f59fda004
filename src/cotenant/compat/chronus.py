"""Chronus' released simulator (SoCC'21): what stops cost there; the rest the policy knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from cotenant.compat.base import System
from cotenant.core.workload import Floats, Workload

DOUBLING_S = 30.0  # per doubling of GPUs and once more: 0.1 min to save, 0.4 min to restore


def _stop_s(work: Workload) -> Floats:
    return np.asarray(DOUBLING_S * (1.0 + np.log2(work.gpus)))


class ChronusQuirks(System):
    """Admission of newcomers only, decisions at slots only, best effort before promised jobs on spare GPUs."""

    bundle: ClassVar[dict[str, str]] = {
        "costs": "chronus",
        "admission": "new_only",
        "events": "slots",
        "spare": "best-effort",
    }
    single = bundle
    costs: ClassVar[dict[str, Callable[[Workload], Floats]]] = {"chronus": _stop_s}
