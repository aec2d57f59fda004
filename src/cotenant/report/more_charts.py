"""Charts about fairness, sizes, lost GPU time, paired differences and grids; the others are in `charts.py`."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cotenant.report import standing
from cotenant.report.charts import Chart, Figure, Line, figure, names_of, title
from cotenant.report.curves import SIZE_CLASSES, rounded
from cotenant.report.differences import HEADINGS, metrics_of
from cotenant.report.paired import GROUP, Difference

MOST_TENANTS = 12
_PARTS = {
    "useful": "#2f9e6e", "restoring and redone": "#c2476f", "idle while jobs waited": "#e0a33a", "idle": "#9aa5b3",
}  # fmt: skip


def fairness(lines: Sequence[Line]) -> Chart | None:
    """Mean fair ratio of the largest tenants (or users, where there are no tenants)."""
    work = lines[0].outcome.workload
    what, codes = next(
        ((name, codes) for name, codes in (("tenant", work.tenant), ("user", work.user)) if len(set(codes.code)) > 1),
        ("", work.tenant),
    )
    if not what:
        return None
    names = [row["name"] for row in standing.by_group(lines[0].outcome, codes, MOST_TENANTS)]
    data = []
    for line in lines:
        own = line.outcome.workload.tenant if what == "tenant" else line.outcome.workload.user
        rows = {row["name"]: row for row in standing.by_group(line.outcome, own, 1_000_000)}
        shown = [name for name in names if name in rows]
        data.append(
            {
                "type": "bar", "meta": line.index, "name": html.escape(line.name, quote=False),
                "x": [html.escape(name, quote=False) for name in shown],
                "y": rounded(np.array([rows[name]["fair_ratio"] for name in shown])), "marker": {"color": line.color},
                "hovertemplate": f"{what} %{{x}}: %{{y:.2f}}×<extra>%{{fullData.name}}</extra>",
            }
        )  # fmt: skip
    return Chart(
        "fairness",
        f"Fairness by {what}",
        "Completion time over that of an equal share of the cluster, mean of the jobs of each "
        f"{what}. 1 is an equal share; higher is later.",
        f"Fair ratio by {what} for {names_of(lines)}",
        figure(data, {"type": "category"}, {"rangemode": "tozero", **title("times an equal share")}),
        wide=True,
    )


def slowdown_by_size(lines: Sequence[Line]) -> Chart:
    """Median and 95th percentile of slowdown per class of size."""
    data: list[Figure] = []
    for line in lines:
        groups = standing.slowdown_by_size(line.outcome)
        marks = np.array([np.percentile(values, (50, 95)) for _, values in groups]).reshape(-1, 2)
        data.append(
            {
                "type": "scatter", "mode": "markers", "meta": line.index, "name": html.escape(line.name, quote=False),
                "x": [label for label, _ in groups], "y": rounded(marks[:, 0]),
                "error_y": {"type": "data", "symmetric": False, "array": rounded(marks[:, 1] - marks[:, 0]),
                            "arrayminus": [0] * len(groups), "thickness": 1.4, "width": 4},
                "marker": {"color": line.color, "size": 9},
                "hovertemplate": "%{x}: median %{y:.3~g}×<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
    made = figure(
        data,
        {"type": "category", "categoryorder": "array", "categoryarray": list(SIZE_CLASSES)},
        {"type": "log", "dtick": 1, **title("slowdown (log scale)")},
    )
    made["layout"]["scattermode"] = "group"
    return Chart(
        "slowdown-by-size",
        "Slowdown by job size",
        "Completion time over duration: the median, and up to the 95th percentile.",
        f"Slowdown by number of GPUs for {names_of(lines)}",
        made,
    )


def waterfall(lines: Sequence[Line]) -> Chart:
    """Where the GPU time of the cluster went."""
    parts = [standing.waterfall(line.outcome) for line in lines]
    names = [html.escape(line.name, quote=False) for line in lines]
    data: list[Figure] = [
        {
            "type": "bar", "orientation": "h", "name": part, "y": names, "marker": {"color": color},
            "x": rounded(np.array([of[part] for of in parts])),
            "hovertemplate": f"%{{x:,.4~g}} GPU-hours {part}<extra>%{{y}}</extra>",
        }
        for part, color in _PARTS.items()
    ]  # fmt: skip
    made = figure(data, {"tickformat": ",", **title("GPU-hours")}, {"type": "category", "autorange": "reversed"})
    made["layout"] |= {
        "barmode": "stack", "showlegend": True, "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    }  # fmt: skip
    return Chart(
        "gpu-time",
        "Where the GPU time went",
        "All GPU-hours from the first submission to the last end. Start-up is part of what is restored.",
        f"GPU-hours by use for {names_of(lines)}",
        made,
    )


def differences(lines: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> Chart | None:
    """Relative differences to the baseline with their intervals."""
    data, metrics = [], metrics_of(lines)
    for at, line in enumerate(lines):
        marks = [m for m in metrics if isinstance(d := line.get(m), Difference) and d.change is not None]
        told = [line[m] for m in marks]
        if not told:
            continue
        group = ", ".join(f"{line[key]}" for key in GROUP if len({repr(one.get(key)) for one in lines}) > 1)
        name = html.escape(f"{line['policy']} {group}".strip(), quote=False)
        shift = 0.6 * ((at + 1) / (len(lines) + 1) - 0.5)
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": name,
                "x": rounded(np.array([100 * d.change for d in told])),
                "y": [round(metrics.index(m) + shift, 3) for m in marks],
                "error_x": {"type": "data", "array": rounded(np.array([100 * (d.change_half or 0.0) for d in told])),
                            "thickness": 1.6, "width": 5},
                "marker": {"color": colors.get(str(line["policy"]), "#6b7c93"), "size": 9},
                "hovertemplate": "%{x:+.1f} %<extra>%{fullData.name}</extra>",
            }
        )  # fmt: skip
    if not data:
        return None
    made = figure(
        data,
        {"ticksuffix": " %", "zeroline": True, "zerolinewidth": 2, **title(f"difference to {lines[0]['baseline']}")},
        {
            "autorange": "reversed", "tickvals": list(range(len(metrics))), "ticktext": [HEADINGS[m] for m in metrics],
            "zeroline": False,
        },
    )  # fmt: skip
    made["layout"] |= {"showlegend": len(data) > 1, "height": 160 + 26 * len(metrics) * max(len(lines), 2) // 2}
    return Chart(
        "paired",
        "Paired differences",
        "Left of zero is less than the baseline. Whiskers are 95 % intervals; where they hold zero, nothing is shown.",
        f"Relative differences to {lines[0]['baseline']} with 95 percent intervals",
        made,
        wide=True,
    )


def heat_map(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Average completion time over policies and whatever was varied; None where nothing was."""
    cells = list(dict.fromkeys(str(row["varied"]) for row in rows if row.get("varied")))
    policies = list(dict.fromkeys(str(row["policy"]) for row in rows))
    if len(cells) < 2:
        return None
    table = np.full((len(policies), len(cells)), np.nan)
    for y, policy in enumerate(policies):
        for x, cell in enumerate(cells):
            own = [row["avg_jct_s"] for row in rows if row["policy"] == policy and row.get("varied") == cell]
            known = [value for value in own if value is not None]
            table[y, x] = np.mean(known) / 3600 if known else np.nan
    values = [[None if np.isnan(value) else float(f"{value:.4g}") for value in line] for line in table.tolist()]
    trace: Figure = {
        "type": "heatmap", "x": [html.escape(cell, quote=False) for cell in cells],
        "y": [html.escape(policy, quote=False) for policy in policies], "z": values, "colorscale": "Viridis",
        "reversescale": True, "texttemplate": "%{z:.3~g}", "colorbar": {"title": {"text": "hours"}},
        "hovertemplate": "%{y}, %{x}: %{z:.3~g} h<extra></extra>",
    }  # fmt: skip
    return Chart(
        "grid",
        "Average completion time over the grid",
        "Hours, mean over seeds and loads; darker is longer.",
        "Average completion time by policy and varied options",
        figure([trace], {"type": "category", "tickangle": -30}, {"type": "category", "autorange": "reversed"}),
        wide=True,
    )
