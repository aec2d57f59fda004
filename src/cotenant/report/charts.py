"""The charts of a comparison as plain data: two axes and marks, which the window's charts draw (`web/src/lib/plot.ts`).

A mark carries `of`, the index of its policy, so that the page can hide a policy in all charts at once; colours of text,
grid and background are left to the page, which follows the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats
from cotenant.report.curves import SIZE_CLASSES, cdf, over_time, rounded, size_class
from cotenant.report.stats import Estimate
from cotenant.report.units import unit_for

PALETTE = (
    "#3b7dd8", "#e07b39", "#2f9e6e", "#c2476f", "#8b63c9",
    "#b5911e", "#2aa3b5", "#d35ac0", "#8a6d5a", "#6b7c93",
    "#6aa84f", "#a23b3b", "#1f5f8b", "#e3b23c", "#5b4b8a", "#3d8b7d",
)  # fmt: skip
DASHES = ("", "7 4", "2 3", "7 3 2 3")
TIME_POINTS = 120

Figure = dict[str, Any]
"""A chart as `Spec` of `plot.ts` takes it, or one of its marks or axes."""


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
    return [chart for chart in charts if chart.figure["marks"]]


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
    marks = []
    for line in lines:
        done = line.outcome.finished & (line.outcome.workload.duration_s > 0)
        x, y = cdf(line.outcome.jct_s[done] / line.outcome.workload.duration_s[done])
        if len(x):
            marks.append(_curve(line, x, y))
    return Chart(
        "slowdown-cdf",
        "Slowdown",
        "Completion time over the time the job needs when it runs alone. 1× means it never waited.",
        f"Distribution of slowdown for {names_of(lines)}",
        figure(marks, {"kind": "log", "unit": "×", "title": "slowdown (log scale)"}, _SHARE),
        wide=True,
    )


def utilisation(lines: Sequence[Line]) -> Chart:
    """GPUs in use over time as a share of the cluster."""
    marks = [
        mark for line in lines
        for mark in _over_time(line, line.outcome.series.gpus_busy / max(1, line.outcome.cluster_gpus))
    ]  # fmt: skip
    return Chart(
        "utilisation",
        "GPU utilisation over time",
        f"Share of the cluster's GPUs that are allocated; mean of up to {TIME_POINTS} intervals.",
        f"GPU utilisation over time for {names_of(lines)}",
        figure(marks, _since(lines), {"as": "percent", "range": [0, 1.03], "title": "GPUs in use"}),
    )


def queue_length(lines: Sequence[Line]) -> Chart:
    """Jobs waiting over time."""
    marks = [mark for line in lines for mark in _over_time(line, line.outcome.series.jobs_waiting)]
    return Chart(
        "queue-length",
        "Queue length over time",
        f"Jobs that wait for GPUs; mean of up to {TIME_POINTS} intervals.",
        f"Number of waiting jobs over time for {names_of(lines)}",
        figure(marks, _since(lines), {"zero": True, "title": "jobs waiting"}),
    )


def jct_by_size(lines: Sequence[Line]) -> Chart:
    """Quartiles, 5th and 95th percentile and mean of JCT per class of job size."""
    marks = []
    for line in lines:
        done = line.outcome.finished
        jct = np.maximum(line.outcome.jct_s[done], 1.0)
        kind = size_class(line.outcome.workload.gpus[done])
        groups = {k: jct[kind == k] for k in range(len(SIZE_CLASSES))}
        filled = {k: values for k, values in groups.items() if len(values)}
        if filled:
            five = [[*np.percentile(values, (5, 25, 50, 75, 95)), values.mean()] for values in filled.values()]
            middle = [row[2] for row in five]
            marks.append(
                {"type": "box", **look(line), "x": list(filled), "y": rounded(np.array(middle)),
                 "five": [rounded(np.array(row)) for row in five]}
            )  # fmt: skip
    y = {"kind": "log", "as": "span", "title": "job completion time (log scale)"}
    return Chart(
        "jct-by-size",
        "Completion time by job size",
        "Box: quartiles and median; whiskers: 5th to 95th percentile; dashed line: mean.",
        f"Job completion time by number of GPUs for {names_of(lines)}",
        figure(marks, {"kind": "band", "names": list(SIZE_CLASSES)}, y),
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
    marks = []
    for line in lines:
        key = (line.outcome.policy, line.outcome.placement)
        own = [row for row in measured if (row["policy"], row["placement"]) == key]
        if not own:
            continue
        means = np.array([row["avg_jct_s"].mean for row in own]) / unit.seconds
        halves = np.array([row["avg_jct_s"].half_width or 0.0 for row in own]) / unit.seconds
        mark: Figure = {**look(line), "y": rounded(means)}
        if spread:
            mark |= {"low": rounded(means - halves), "high": rounded(means + halves)}
        if len(loads) > 1:
            mark |= {"type": "line", "points": True, "x": [row["load"] for row in own]}
        else:
            mark |= {"type": "bar", "x": [0]}
        marks.append(mark)
    x = {"title": "offered load"} if len(loads) > 1 else {"kind": "band", "names": ["average JCT"]}
    y = {"zero": True, "unit": f" {unit.name}", "title": f"average JCT ({unit.name})"}
    what = "against offered load" if len(loads) > 1 else "by policy"
    return Chart(
        "seeds",
        f"Average completion time {what}",
        "Mean over seeds; the bars span the 95 % confidence interval." if spread else "One seed, no interval.",
        f"Average job completion time {what} for {names_of(lines)}",
        figure(marks, x, y),
        wide=True,
    )


_SHARE = {"as": "percent", "range": [0, 1.02], "title": "share of jobs"}


def _time_cdf(curves: Sequence[tuple[Line, Sequence[Floats]]], name: str) -> Figure:
    """One curve per policy over the jobs of all its runs, and a band from the lowest to the highest run."""
    marks: list[Figure] = []
    for line, runs in curves:
        x, y = cdf(np.concatenate(runs), floor=1.0)
        if len(x) and len(runs) > 1:
            marks.append(_band(line, [run for run in runs if len(run)]))
        if len(x):
            marks.append(_curve(line, x, y))
    return figure(marks, {"kind": "log", "as": "span", "title": name}, _SHARE)


def _band(line: Line, runs: Sequence[Floats]) -> Figure:
    """Between which times each share of the jobs was done, over runs."""
    shares = np.linspace(0.01, 0.99, 60)
    times = np.array([np.maximum(np.quantile(run, shares), 1.0) for run in runs])
    return {
        "type": "fill", **look(line), "x": rounded(np.concatenate([times.min(axis=0), times.max(axis=0)[::-1]]), 4),
        "y": rounded(np.concatenate([shares, shares[::-1]]), 4), "quiet": True,
    }  # fmt: skip


def _over_time(line: Line, value: Floats) -> list[Figure]:
    x, y = over_time(line.outcome.series.time_s, value, points=TIME_POINTS)
    return [_curve(line, x - origin(line.outcome), y)] if len(x) else []


def _curve(line: Line, x: Floats, y: Floats) -> Figure:
    return {"type": "line", "step": True, **look(line), "x": rounded(x), "y": rounded(y)}


def look(line: Line) -> Figure:
    """What all marks of a policy have in common."""
    made: Figure = {"of": line.index, "name": line.name, "color": line.color}
    return {**made, "dash": line.dash} if line.dash else made


def figure(marks: Sequence[Figure], x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> Figure:
    """Marks on those axes; `more`: `across` (bars from the left), `stack`, `legend`, `height`, `rule` (a line at x)."""
    return {"x": dict(x), "y": dict(y), "marks": list(marks), **more}


def origin(outcome: Outcome) -> float:
    """The first submission, from which charts count time."""
    submit = outcome.workload.submit_s
    return float(submit[0]) if len(submit) else 0.0


def _since(lines: Sequence[Line]) -> dict[str, Any]:
    """The axis of time, up to when the last job has come and nobody waits any more: what follows is an idle tail."""
    ends = [0.0]
    for line in lines:
        series, work = line.outcome.series, line.outcome.workload
        waits = series.time_s[series.jobs_waiting > 0]
        last = max(float(waits[-1]) if len(waits) else 0.0, float(work.submit_s[-1]) if len(work) else 0.0)
        ends.append((last - origin(line.outcome)) * 1.03)
    axis: dict[str, Any] = {"kind": "time", "as": "span", "title": "time since first submission"}
    return {**axis, "range": rounded(np.array([0.0, max(ends)]))} if max(ends) > 0 else axis


def names_of(lines: Sequence[Line]) -> str:
    """For screen readers."""
    return ", ".join(line.name for line in lines)
