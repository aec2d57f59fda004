"""Charts about fairness, sizes, lost GPU time, paired differences and grids; the others are in `charts.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cotenant.report import standing
from cotenant.report.charts import Chart, Figure, Line, figure, look, names_of
from cotenant.report.curves import SIZE_CLASSES, rounded
from cotenant.report.differences import HEADINGS, metrics_of
from cotenant.report.paired import GROUP, Difference

MOST_TENANTS = 12
_PARTS = {
    "useful": "#2f9e6e", "start-up": "#8b63c9", "restoring": "#3b7dd8", "done again": "#c2476f",
    "idle while jobs waited": "#e0a33a", "idle": "#9aa5b3",
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
    marks = []
    for line in lines:
        own = line.outcome.workload.tenant if what == "tenant" else line.outcome.workload.user
        rows = {row["name"]: row for row in standing.by_group(line.outcome, own, 1_000_000)}
        at = [n for n, name in enumerate(names) if name in rows]
        ratios = rounded(np.array([rows[names[n]]["fair_ratio"] for n in at]))
        marks.append({"type": "bar", **look(line), "x": at, "y": ratios})
    return Chart(
        "fairness",
        f"Fairness by {what}",
        "Completion time over that of an equal share of the cluster, mean of the jobs of each "
        f"{what}. 1 is an equal share; higher is later.",
        f"Fair ratio by {what} for {names_of(lines)}",
        figure(marks, {"kind": "band", "names": names}, {"zero": True, "unit": "×", "title": "times an equal share"}),
        wide=True,
    )


def slowdown_by_size(lines: Sequence[Line]) -> Chart:
    """Median and 95th percentile of slowdown per class of size."""
    marks = []
    for line in lines:
        groups = standing.slowdown_by_size(line.outcome)
        parts = np.array([np.percentile(values, (50, 95)) for _, values in groups]).reshape(-1, 2)
        middle, high = rounded(parts[:, 0]), rounded(parts[:, 1])
        at = [SIZE_CLASSES.index(label) for label, _ in groups]
        marks.append({"type": "dot", **look(line), "x": at, "y": middle, "low": middle, "high": high})
    axis = {"kind": "log", "unit": "×", "title": "slowdown (log scale)"}
    made = figure(marks, {"kind": "band", "names": list(SIZE_CLASSES)}, axis)
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
    marks = [
        {
            "type": "bar", "name": part, "color": color, "x": rounded(np.array([of[part] for of in parts])),
            "y": list(range(len(lines))),
        }
        for part, color in _PARTS.items()
        if any(of[part] > 0 for of in parts)
    ]  # fmt: skip
    names = {"kind": "band", "names": [line.name for line in lines]}
    made = figure(marks, {"zero": True, "title": "GPU-hours"}, names, across=True, stack=True, legend=True)
    return Chart(
        "gpu-time",
        "Where the GPU time went",
        "All GPU-hours from the first submission to the last end. Restoring is what starts after the first one cost.",
        f"GPU-hours by use for {names_of(lines)}",
        made,
    )


def differences(lines: Sequence[Mapping[str, Any]], policies: Mapping[str, Line]) -> Chart | None:
    """Relative differences to the baseline with their intervals."""
    marks, metrics = [], metrics_of(lines)
    for line in lines:
        known = [m for m in metrics if isinstance(d := line.get(m), Difference) and d.change is not None]
        if not known:
            continue
        group = ", ".join(f"{line[key]}" for key in GROUP if len({repr(one.get(key)) for one in lines}) > 1)
        drawn = look(policies[str(line["policy"])]) if str(line["policy"]) in policies else {"color": "#6b7c93"}
        change = 100 * np.array([line[m].change for m in known])
        low, high = 100 * np.array([line[m].change_ends or (line[m].change,) * 2 for m in known]).T
        marks.append(
            {
                **drawn, "type": "dot", "name": f"{line['policy']} {group}".strip(), "x": rounded(change),
                "y": [metrics.index(m) for m in known], "low": rounded(low), "high": rounded(high),
            }
        )  # fmt: skip
    if not marks:
        return None
    made = figure(
        marks, {"unit": " %", "title": f"difference to {lines[0]['baseline']}"},
        {"kind": "band", "names": [HEADINGS[m] for m in metrics]},
        across=True, rule=0, legend=len(marks) > 1, height=100 + 13 * len(metrics) * max(len(lines), 2),
    )  # fmt: skip
    return Chart(
        "paired",
        "Paired differences",
        "Left of zero is less than the baseline. Whiskers are 95 % intervals; where they hold zero, nothing is shown. "
        "Hide a policy above to see the others closer.",
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
    mark: Figure = {"type": "cells", "name": "", "color": "", "x": [], "y": [], "z": values}
    names = {"kind": "band", "names": policies, "unit": " h"}
    made = figure([mark], {"kind": "band", "names": cells}, names, height=90 + 34 * len(policies))
    return Chart(
        "grid",
        "Average completion time over the grid",
        "Hours, mean over seeds and loads; darker is longer.",
        "Average completion time by policy and varied options",
        made,
        wide=True,
    )
