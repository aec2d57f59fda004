"""The Gantt chart of a comparison: the same nodes and window for every policy, one set of bars per policy."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.report.charts import Chart, Figure, Line, figure, origin, title
from cotenant.report.curves import SIZE_CLASSES, rounded, size_class
from cotenant.report.gantt import Bars, lay_out
from cotenant.report.standing import busiest_window
from cotenant.report.units import Unit, duration, unit_for

SIZE_COLORS = ("#8fbbe8", "#3b7dd8", "#e8a33d", "#c8443c")


def gantt(lines: Sequence[Line], window_s: tuple[float, float] | None) -> tuple[Chart, list[list[Figure]]] | None:
    """The Gantt chart without data, and the traces of each line, one per job size; None without segments."""
    outcomes = [line.outcome for line in lines]
    made = lay_out(outcomes, window_s or busiest_window(outcomes))
    if made is None:
        return None
    zero = origin(lines[0].outcome)
    unit = unit_for(made.end_s - zero)
    edges = [*made.first_row, made.rows]
    centres = [(low + high) / 2 for low, high in pairwise(edges)]
    span = [(made.start_s - zero) / unit.seconds, (made.end_s - zero) / unit.seconds]
    drawn = figure(
        [],
        {"range": rounded(np.array(span), 7), **title(f"time since first submission ({unit.name})")},
        {
            "range": [made.rows, 0],
            "tickvals": centres,
            "ticktext": [f"node {node}" if node >= 0 else "pool" for node in made.nodes],
            "showgrid": False,
            "zeroline": False,
        },
    )
    drawn["layout"] |= {
        "barmode": "overlay",
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "height": max(300, min(860, 90 + 9 * made.rows)),
        "shapes": [_rule(edge) for edge in edges[1:-1]],
    }
    left_out = f" The first {len(made.nodes)} nodes are shown." if made.nodes_left_out else ""
    window = f"{duration(made.start_s - zero)} to {duration(made.end_s - zero)}"
    chart = Chart(
        "gantt",
        "Who ran where",
        f"GPUs of each node from {window} after the first submission, coloured by job size.{left_out}",
        f"Gantt chart of jobs on nodes from {window}",
        drawn,
        wide=True,
    )
    pairs = zip(lines, made.bars, strict=True)
    return chart, [_bar_traces(line.outcome, bars, zero, unit) for line, bars in pairs]


def _bar_traces(outcome: Outcome, bars: Bars, zero: float, unit: Unit) -> list[Figure]:
    work = outcome.workload
    kind = size_class(work.gpus[bars.job])
    traces = []
    for k, label in enumerate(SIZE_CLASSES):
        at = np.flatnonzero(kind == k)
        length = bars.end_s[at] - bars.start_s[at]
        ids = [html.escape(str(work.job_id[job]), quote=False) for job in bars.job[at].tolist()]
        about = zip(ids, bars.gpus[at].tolist(), bars.node[at].tolist(), length.tolist(), strict=True)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "marker": {"color": SIZE_COLORS[k], "line": {"width": 0.6}},
                "base": rounded((bars.start_s[at] - zero) / unit.seconds, 7),
                "x": rounded(length / unit.seconds, 6),
                "y": rounded(bars.row[at], 6),
                "width": [height - 0.08 for height in bars.height[at].tolist()],
                "customdata": [[name, gpus, node, duration(held)] for name, gpus, node, held in about],
                "hovertemplate": "job %{customdata[0]}<br>node %{customdata[2]}, GPUs held: %{customdata[1]}"
                "<br>for %{customdata[3]}<extra></extra>",
            }
        )
    return traces


def _rule(row: int) -> Figure:
    ends = {"x0": 0, "x1": 1, "y0": row, "y1": row}
    return {"type": "line", "xref": "paper", "yref": "y", "layer": "above", "line": {"width": 1}, **ends}
