"""What an order says of one job: the values that it sorts by, in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from cotenant.core import columns as col
from cotenant.core.reasons import moment
from cotenant.core.view import View


def _first_start(view: View) -> str:
    began_s = float(view.first_start_s[0])
    return "it has never run" if math.isnan(began_s) else f"it first ran at {moment(began_s)}"


def _deadline(view: View) -> str:
    due_s = float(view.deadline_s[0])
    if math.isnan(due_s):
        return "it has no deadline, and those who have come first"
    return f"its deadline is at {moment(due_s)}, and earlier ones come first"


_WORDS: dict[int, Callable[[View], str]] = {
    col.BY_NOTHING: lambda view: f"it came at {moment(float(view.submit_s[0]))}, and who came before comes first",
    col.BY_REMAINING: lambda view: (
        f"it is believed to take {view.remaining_s[0]:.0f} s more, and shorter jobs come first"
    ),
    col.BY_REMAINING_GPU: lambda view: (
        f"it is believed to need {view.remaining_s[0] * view.gpus[0]:.0f} GPU-seconds more, and less comes first"
    ),
    col.BY_ATTAINED_GPU: lambda view: (
        f"it has had {view.attained_gpu_s[0]:.0f} GPU-seconds, and who had less comes first"
    ),
    col.BY_QUEUE: lambda view: f"its queue follows from the {view.attained_gpu_s[0]:.0f} GPU-seconds that it has had",
    col.BY_FIRST_START: _first_start,
    col.BY_LISTED: lambda view: "who runs comes first, then who was stopped last, then who came or was passed over",
    col.BY_GITTINS: lambda view: f"its index follows from the {view.attained_gpu_s[0]:.0f} GPU-seconds that it has had",
    col.BY_BELIEF: lambda view: (
        f"it is believed to take {view.believed_s[0]:.0f} s in all, and shorter jobs come first"
    ),
    col.BY_BELIEF_GPU: lambda view: (
        f"it is believed to need {view.believed_s[0] * view.gpus[0]:.0f} GPU-seconds in all, and less comes first"
    ),
    col.BY_DRAW: lambda view: "its place was drawn by lot when it came",
    col.BY_GPUS: lambda view: f"it asks for {view.gpus[0]} GPUs, and who asks for fewer comes first",
    col.BY_DEADLINE: _deadline,
}


def by_column(column: int, view: View) -> str:
    """What one order column says of the first job of a view."""
    return _WORDS[column](view)
