"""Who ran where: the segments of a window laid out so that every job has its own stripe of GPUs on its node.

An outcome says how many GPUs of a node a job held, not which; each segment takes the lowest free GPU slots
when it starts, and is drawn as one bar per run of neighbouring slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.outcome import Outcome, Segments
from cotenant.core.workload import Floats, Ints

MAX_BARS = 6000
MAX_NODES = 32
MAX_SLOTS = 256


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one policy: GPU rows counted from the top, times in seconds, jobs as rows of the workload."""

    job: Ints
    node: Ints
    gpus: Ints
    row: Floats
    height: Ints
    start_s: Floats
    end_s: Floats


@dataclass(frozen=True, slots=True)
class GanttLayout:
    """The same window and the same node rows for every outcome. `first_row[i]` is where `nodes[i]` begins."""

    start_s: float
    end_s: float
    nodes: list[int]
    first_row: list[int]
    rows: int
    bars: list[Bars]
    nodes_left_out: int


def lay_out(
    outcomes: Sequence[Outcome], window_s: tuple[float, float] | None = None, most: int = MAX_BARS
) -> GanttLayout | None:
    """Choose nodes and window so that the chart stays readable, then place the bars; None without segments.

    Nodes are the lowest numbered ones. The window is the one given, or the whole of what was recorded; in
    either case it is shortened around its middle until it holds at most `most` segments.
    """
    all_segments = [outcome.segments for outcome in outcomes]
    filled = [s for s in all_segments if len(s.job)]
    if not filled:
        return None
    names = np.unique(np.concatenate([s.node for s in filled]))
    start, end = window_s or (min(float(s.start_s.min()) for s in filled), max(float(s.end_s.max()) for s in filled))
    heights = {int(node): max(_peak(_on_node(s, int(node))) for s in filled) for node in names[:MAX_NODES]}
    nodes: list[int] = []
    first: list[int] = []
    rows = 0
    for node, height in heights.items():
        if nodes and rows + height > MAX_SLOTS:
            break
        nodes.append(node)
        first.append(rows)
        rows += height
    shown = [_on_nodes(s, nodes) for s in all_segments]
    start, end = _fit(shown, start, end, most)
    bars = [_place(_inside(s, start, end), dict(zip(nodes, first, strict=True)), heights) for s in shown]
    return GanttLayout(start, end, nodes, first, rows, bars, len(names) - len(nodes))


def _take(segments: Segments, keep: np.ndarray[tuple[int], np.dtype[np.bool_]] | Ints) -> Segments:
    return Segments(
        segments.job[keep], segments.node[keep], segments.gpus[keep], segments.start_s[keep], segments.end_s[keep]
    )


def _on_node(segments: Segments, node: int) -> Segments:
    return _take(segments, segments.node == node)


def _on_nodes(segments: Segments, nodes: list[int]) -> Segments:
    return _take(segments, np.isin(segments.node, nodes))


def _inside(segments: Segments, start: float, end: float) -> Segments:
    """The segments that reach into the window, cut to it, in order of start (then node, then job)."""
    kept = _take(segments, (segments.end_s > start) & (segments.start_s < end))
    order = np.lexsort((kept.job, kept.node, kept.start_s))
    kept = _take(kept, order.astype(np.int64))
    return Segments(kept.job, kept.node, kept.gpus, np.maximum(kept.start_s, start), np.minimum(kept.end_s, end))


def _peak(segments: Segments) -> int:
    """The most GPUs held at one time; releases come before takes at the same instant."""
    if not len(segments.job):
        return 0
    time = np.concatenate([segments.end_s, segments.start_s])
    change = np.concatenate([-segments.gpus, segments.gpus])
    order = np.lexsort((change, time))
    return int(np.cumsum(change[order]).max())


def _fit(shown: Sequence[Segments], start: float, end: float, most: int) -> tuple[float, float]:
    """Halve the window around its middle until it holds at most `most` segments."""
    for _ in range(60):
        if sum(int(((s.end_s > start) & (s.start_s < end)).sum()) for s in shown) <= most:
            break
        middle, quarter = (start + end) / 2, (end - start) / 4
        start, end = middle - quarter, middle + quarter
    return start, end


def _place(segments: Segments, first_row: dict[int, int], heights: dict[int, int]) -> Bars:
    """Give each segment the lowest free slots of its node; one bar per run of neighbouring slots."""
    busy_until = {node: np.full(height, -np.inf) for node, height in heights.items()}
    made: list[tuple[int, int, int, float, int, float, float]] = []
    columns = (segments.job, segments.node, segments.gpus, segments.start_s, segments.end_s)
    for job, node, gpus, start, end in zip(*(column.tolist() for column in columns), strict=True):
        slots = busy_until[node]
        free = np.flatnonzero(slots <= start)[:gpus]
        slots[free] = end
        for run in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            if len(run):
                top = first_row[node] + int(run[0])
                made.append((job, node, gpus, top + len(run) / 2, len(run), start, end))
    table = np.array(made, np.float64).reshape(-1, 7)
    whole = table.astype(np.int64)
    return Bars(whole[:, 0], whole[:, 1], whole[:, 2], table[:, 3], whole[:, 4], table[:, 5], table[:, 6])
