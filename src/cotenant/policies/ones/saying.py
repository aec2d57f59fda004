"""What policies that change sizes say of a job: the size that it got, and why not more."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cotenant.core.plan import Slices, Why
from cotenant.core.reasons import moment
from cotenant.core.view import View


def sizes_said(view: View, run: Mapping[int, Slices], next_s: float, how: str) -> Why:
    """The size that an elastic job got and why not more; rigid jobs go by submission, before the others."""
    rows, gpus, elastic = view.rows, view.gpus, view.facts.elastic
    fewest, most = view.size_limits(rows)

    def why(row: int) -> str:
        at = int(np.flatnonzero(rows == row)[0])
        if elastic is None or not elastic[row]:
            rigid = f"it cannot change its size, and those who came before leave it no {gpus[at]} GPUs together"
            return "" if row in run else rigid
        takes = f"it takes {fewest[at]} to {most[at]} GPUs and has {sum(count for _, count in run.get(row, ()))}"
        return f"{takes}: {how}; sizes are given out again at {moment(next_s)}"

    return why
