"""The charts of a comparison as Plotly figures (plain `data` and `layout` dicts, drawn by the page's script).

Every trace carries `meta`, the index of its policy, so that the page can hide a policy in all charts at once;
colours of text, grid and background are left to the page, which follows the reader's light or dark theme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats
from cotenant.report.curves import SIZE_CLASSES, cdf, over_time, rounded, size_class
from cotenant.report.stats import Estimate
from cotenant.report.units import Unit, duration, unit_for

PALETTE = (
    "#3b7dd8", "#e07b39", "#2f9e6e", "#c2476f", "#8b63c9",
    "#b5911e", "#2aa3b5", "#d35ac0", "#8a6d5a", "#6b7c93",
    "#6aa84f", "#a23b3b", "#1f5f8b", "#e3b23c", "#5b4b8a", "#3d8b7d",
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot")
TIME_POINTS = 120
_TIME_TICKS = (1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 86400000)

Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the page: its name in ids, heading, explanation, text for screen readers, figure."""

    slug: str
    title: str
    note: str
    label: str
    figure: Figure
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One policy in the charts: its runs over seeds, the first of them, its name, and its look in every chart."""

    index: int
    name: str
    outcome: Outcome
    color: str
    dash: str
    runs: tuple[Outcome, ...] = ()


def lines_of(outcomes: Sequence[Outcome]) -> list[Line]:
    """What to chart: each policy and placement with all its runs, in order, each with its own look."""
    runs: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault((outcome.policy, outcome.placement), []).append(outcome)
    several = len({placement for _, placement in runs}) > 1
    lines = []
    for i, ((policy, placement), own) in enumerate(runs.items()):
        name = f"{policy} / {placement}" if several else policy
        dash = DASHES[i // len(PALETTE) % len(DASHES)]
        lines.append(Line(i, name, own[0], PALETTE[i % len(PALETTE)], dash, tuple(own)))
    return lines


def cells_of(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Runs that belong into one set of charts, by what tells the sets apart: load, cluster, whatever was varied."""
    keys = [key for key in ("load", "varied", "cluster") if len({repr(o.summary.get(key)) for o in outcomes}) > 1]
    keys = [key for key in keys if key != "cluster" or "varied" not in keys]
    cells: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        label = ", ".join(f"{'' if key == 'varied' else key + ' '}{outcome.summary.get(key)}" for key in keys)
        cells.setdefault(label, []).append(outcome)
    return cells


def build_charts(lines: Sequence[Line]) -> list[Chart]:
    """The usual charts of runs, in the order of the page; those without data are left out."""
    charts = [
        jct_cdf(lines),
        queue_cdf(lines),
        utilisation(lines),
        queue_length(lines),
        jct_by_size(lines),
        slowdown_cdf(lines),
    ]
    return [chart for chart in charts if chart.figure["data"]]


def jct_cdf(lines: Sequence[Line]) -> Chart:
    """Share of jobs completed within a time."""
    curves = [(line, [run.jct_s[run.finished] for run in line.runs or (line.outcome,)]) for line in lines]
    return Chart(
        "jct-cdf",
        "Job completion time",
        "Share of jobs that completed within the time on the axis. Further left is better.",
        f"Distribution of job completion time for {names_of(lines)}",
        _time_cdf(curves, "job completion time (log scale)"),
    )


def queue_cdf(lines: Sequence[Line]) -> Chart:
    """Share of jobs that waited at most a time; those that did not wait stand at the left edge."""
    curves = [(line, [run.queue_s[run.finished] for run in line.runs or (line.outcome,)]) for line in lines]
    return Chart(
        "queue-cdf",
        "Queueing delay",
        "Share of jobs that waited at most the time on the axis; a second or less is the left edge.",
        f"Distribution of queueing delay for {names_of(lines)}",
        _time_cdf(curves, "time spent waiting (log scale)"),
    )


def slowdown_cdf(lines: Sequence[Line]) -> Chart:
    """Share of jobs by JCT over duration; jobs of no duration have no slowdown."""
    data = []
    highest = 1.0
    for line in lines:
        done = line.outcome.finished & (line.outcome.workload.duration_s > 0)
        x, y = cdf(line.outcome.jct_s[done] / line.outcome.workload.duration_s[done])
        if len(x):
            highest = max(highest, float(x[-1]))
            look = _line(line, x, y, "hv")
            look["hovertemplate"] = "%{y:.1%} of jobs: slowdown ≤ %{x:.3~g}<extra>%{fullData.name}</extra>"
            data.append(look)
    steps = (1, 2, 5) if highest < 2000 else (1,)
    ticks = [m * 10**e for e in range(math.ceil(math.log10(highest)) + 1) for m in steps]
    axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,}×" for tick in ticks]}
    return Chart(
        "slowdown-cdf",
        "Slowdown",
        "Completion time over the time the job needs when it runs alone. 1× means it never waited.",
        f"Distribution of slowdown for {names_of(lines)}",
        figure(data, {**axis, **title("slowdown (log scale)")}, _SHARE_AXIS),
        wide=True,
    )


def utilisation(lines: Sequence[Line]) -> Chart:
    """GPUs in use over time as a share of the cluster."""
    unit = _span_unit(lines)
    data = []
    for line in lines:
        share = line.outcome.series.gpus_busy / max(1, line.outcome.cluster_gpus)
        data += _over_time(line, share, unit, "%{y:.1%} of GPUs")
    y = {"range": [0, 1.03], "tickformat": ".0%", **title("GPUs in use")}
    return Chart(
        "utilisation",
        "GPU utilisation over time",
        f"Share of the cluster's GPUs that are allocated; mean of up to {TIME_POINTS} intervals.",
        f"GPU utilisation over time for {names_of(lines)}",
        figure(data, _since(lines, unit), y),
    )


def queue_length(lines: Sequence[Line]) -> Chart:
    """Jobs waiting over time."""
    unit = _span_unit(lines)
    data = []
    for line in lines:
        data += _over_time(line, line.outcome.series.jobs_waiting, unit, "%{y:,.0f} waiting")
    return Chart(
        "queue-length",
        "Queue length over time",
        f"Jobs that wait for GPUs; mean of up to {TIME_POINTS} intervals.",
        f"Number of waiting jobs over time for {names_of(lines)}",
        figure(
            data,
            _since(lines, unit),
            {"rangemode": "tozero", "tickformat": ",", **title("jobs waiting")},
        ),
    )


def jct_by_size(lines: Sequence[Line]) -> Chart:
    """Quartiles, 5th and 95th percentile and mean of JCT per class of job size."""
    data = []
    extent: list[float] = []
    for line in lines:
        done = line.outcome.finished
        jct = np.maximum(line.outcome.jct_s[done], 1.0)
        kind = size_class(line.outcome.workload.gpus[done])
        groups = [(label, jct[kind == k]) for k, label in enumerate(SIZE_CLASSES)]
        filled = [(label, values) for label, values in groups if len(values)]
        if not filled:
            continue
        marks = np.array([np.percentile(values, (5, 25, 50, 75, 95)) for _, values in filled])
        extent += [float(marks.min()), float(marks.max())]
        data.append(
            {
                "type": "box",
                "meta": line.index,
                "name": html.escape(line.name, quote=False),
                "x": [label for label, _ in filled],
                "lowerfence": rounded(marks[:, 0]),
                "q1": rounded(marks[:, 1]),
                "median": rounded(marks[:, 2]),
                "q3": rounded(marks[:, 3]),
                "upperfence": rounded(marks[:, 4]),
                "mean": rounded(np.array([values.mean() for _, values in filled])),
                "boxmean": True,
                "boxpoints": False,
                "line": {"width": 1.4, "color": line.color},
                "fillcolor": line.color + "66",
                "whiskerwidth": 0.5,
            }
        )
    made = figure(
        data,
        {"type": "category", "categoryorder": "array", "categoryarray": list(SIZE_CLASSES)},
        {"type": "log", **_time_ticks(extent), **title("job completion time (log scale)")},
    )
    made["layout"]["boxmode"] = "group"
    return Chart(
        "jct-by-size",
        "Completion time by job size",
        "Box: quartiles and median; whiskers: 5th to 95th percentile; dashed line: mean.",
        f"Job completion time by number of GPUs for {names_of(lines)}",
        made,
        wide=True,
    )


def load_chart(lines: Sequence[Line], aggregates: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Mean JCT with its confidence interval: against load if there are several, else per policy."""
    loads = sorted({row["load"] for row in aggregates if row.get("load") is not None})
    measured = [row for row in aggregates if isinstance(row.get("avg_jct_s"), Estimate)]
    spread = any(row["avg_jct_s"].half_width is not None for row in measured)
    if not measured or (len(loads) < 2 and not spread):
        return None
    unit = unit_for(float(np.median([row["avg_jct_s"].mean for row in measured])))
    data = []
    for line in lines:
        key = (line.outcome.policy, line.outcome.placement)
        own = [row for row in measured if (row["policy"], row["placement"]) == key]
        if not own:
            continue
        means = np.array([row["avg_jct_s"].mean for row in own]) / unit.seconds
        halves = np.array([row["avg_jct_s"].half_width or 0.0 for row in own]) / unit.seconds
        name = html.escape(line.name, quote=False)
        error = {"type": "data", "array": rounded(halves), "thickness": 1.4, "width": 4}
        trace: Figure = {"meta": line.index, "name": name, "y": rounded(means), "error_y": error}
        trace["hovertemplate"] = f"%{{y:.3~g}} {unit.name}<extra>%{{fullData.name}}</extra>"
        if len(loads) > 1:
            look = {"color": line.color, "dash": line.dash, "width": 2}
            trace |= {"type": "scatter", "mode": "lines+markers", "x": [row["load"] for row in own], "line": look}
        else:
            trace |= {"type": "bar", "x": [name], "marker": {"color": line.color}}
        data.append(trace)
    x = {"tickvals": loads, **title("offered load")} if len(loads) > 1 else {"type": "category"}
    y = {"rangemode": "tozero", **title(f"average JCT ({unit.name})")}
    what = "against offered load" if len(loads) > 1 else "by policy"
    return Chart(
        "seeds",
        f"Average completion time {what}",
        "Mean over seeds; the bars span the 95 % confidence interval." if spread else "One seed, no interval.",
        f"Average job completion time {what} for {names_of(lines)}",
        figure(data, x, y),
        wide=True,
    )


_SHARE_AXIS = {"range": [0, 1.02], "tickformat": ".0%", "title": {"text": "share of jobs"}}


def _time_cdf(curves: Sequence[tuple[Line, Sequence[Floats]]], name: str) -> Figure:
    """One curve per policy over the jobs of all its runs, and a band from the lowest to the highest run."""
    data: list[Figure] = []
    extent: list[float] = []
    for line, runs in curves:
        x, y = cdf(np.concatenate(runs), floor=1.0)
        if len(x) and len(runs) > 1:
            data.append(_band(line, [run for run in runs if len(run)]))
        if len(x):
            extent += [float(x[0]), float(x[-1])]
            look = _line(line, x, y, "hv")
            look["text"] = [duration(value) for value in x.tolist()]
            look["hovertemplate"] = "%{y:.1%} of jobs ≤ %{text}<extra>%{fullData.name}</extra>"
            data.append(look)
    axis = {"type": "log", **_time_ticks(extent), **title(name)}
    if axis["tickvals"][:1] == [1]:
        axis["ticktext"][0] = "≤ 1 s"
    return figure(data, axis, _SHARE_AXIS)


def _band(line: Line, runs: Sequence[Floats]) -> Figure:
    """Between which times each share of the jobs was done, over runs."""
    shares = np.linspace(0.01, 0.99, 60)
    times = np.array([np.maximum(np.quantile(run, shares), 1.0) for run in runs])
    return {
        "type": "scatter", "mode": "lines", "meta": line.index, "name": html.escape(line.name, quote=False),
        "x": rounded(np.concatenate([times.min(axis=0), times.max(axis=0)[::-1]]), 4),
        "y": rounded(np.concatenate([shares, shares[::-1]]), 4), "fill": "toself", "fillcolor": line.color + "26",
        "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip


def _over_time(line: Line, value: Floats, unit: Unit, hover: str) -> list[Figure]:
    x, y = over_time(line.outcome.series.time_s, value, points=TIME_POINTS)
    if not len(x):
        return []
    trace = _line(line, (x - origin(line.outcome)) / unit.seconds, y, "hv")
    trace["hovertemplate"] = f"%{{x:.2f}} {unit.name}: {hover}<extra>%{{fullData.name}}</extra>"
    return [trace]


def _line(line: Line, x: Floats, y: Floats, shape: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": line.index,
        "name": html.escape(line.name, quote=False),
        "x": rounded(x, 6),
        "y": rounded(y, 5),
        "line": {"color": line.color, "dash": line.dash, "width": 2, "shape": shape},
    }


def figure(data: list[Figure], x: Mapping[str, Any], y: Mapping[str, Any]) -> Figure:
    """A figure with those axes; the page adds theme and margins."""
    layout = {"xaxis": dict(x), "yaxis": dict(y), "showlegend": False, "hovermode": "closest"}
    return {"data": data, "layout": layout}


def title(text: str) -> dict[str, Any]:
    """The title of an axis, clear of its ticks."""
    return {"title": {"text": text, "standoff": 14}}


def _time_ticks(extent: Sequence[float]) -> dict[str, Any]:
    """Ticks at round human times that the values reach."""
    low, high = min(extent, default=1.0), max(extent, default=1.0)
    ticks = [tick for tick in _TIME_TICKS if low / 10 < tick < high * 10]
    return {"tickvals": ticks, "ticktext": [_tick(tick) for tick in ticks]}


def _tick(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def origin(outcome: Outcome) -> float:
    """The first submission, from which charts count time."""
    submit = outcome.workload.submit_s
    return float(submit[0]) if len(submit) else 0.0


def _since(lines: Sequence[Line], unit: Unit) -> dict[str, Any]:
    """The axis of time, up to when the last job has come and nobody waits any more: what follows is an idle tail."""
    ends = [0.0]
    for line in lines:
        series, work = line.outcome.series, line.outcome.workload
        waits = series.time_s[series.jobs_waiting > 0]
        last = max(float(waits[-1]) if len(waits) else 0.0, float(work.submit_s[-1]) if len(work) else 0.0)
        ends.append((last - origin(line.outcome)) * 1.03)
    axis = title(f"time since first submission ({unit.name})")
    return {**axis, "range": rounded(np.array([0.0, max(ends) / unit.seconds]), 5)} if max(ends) > 0 else axis


def _span_unit(lines: Sequence[Line]) -> Unit:
    ends = [line.outcome.series.time_s[-1] - origin(line.outcome) for line in lines if len(line.outcome.series.time_s)]
    return unit_for(float(max(ends, default=0.0)))


def names_of(lines: Sequence[Line]) -> str:
    """For screen readers."""
    return ", ".join(line.name for line in lines)
