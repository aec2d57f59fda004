"""How right forecasts were, as one HTML file: foretold against happened, and how often each quantile was kept."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from cotenant._version import __version__
from cotenant.report.charts import PALETTE, Chart, Figure, figure, title
from cotenant.report.html import page, place_of

_WHEN = {"submit": "at submission", "start": "at start", "half": "half-way"}


def write_page(found: Mapping[str, Any], path: str) -> None:
    """Draw the answer of `cotenant forecast evaluate`."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(render(found))


def render(found: Mapping[str, Any]) -> str:
    """The page as text."""
    charts = [_ends(found["forecasts"]), _calibration(found["calibration"])]
    about = f"{len(found['forecasts'])} forecasts of jobs that have succeeded since"
    legend = "".join(
        f'<span><span class="swatch" style="background:{_color(at)}"></span>{html.escape(_WHEN[at])}</span> '
        for at in _WHEN
    )
    body = [
        '<header>\n<p class="brand">Cotenant · forecasts</p>\n<h1>Forecasts against what happened</h1>',
        f"<p>{about}</p></header>",
        f'<main><section id="charts"><div class="legend">{legend}</div>',
        f'<div class="grid">{"".join(place_of(chart) for chart in charts)}</div></section></main>',
    ]  # fmt: skip
    return page("Forecasts", body, charts, version=__version__)


def _color(at: str) -> str:
    return PALETTE[list(_WHEN).index(at)]


def _ends(points: list[Mapping[str, Any]]) -> Chart:
    """Each forecast as a point with its interval."""
    data: list[Figure] = []
    for at, name in _WHEN.items():
        some = [point for point in points if point["at"] == at]
        foretold = [point["foretold_s"] for point in some]
        limits = {
            "type": "data", "symmetric": False, "thickness": 1, "width": 0,
            "array": [point["high_s"] - point["foretold_s"] for point in some],
            "arrayminus": [point["foretold_s"] - point["low_s"] for point in some],
        }  # fmt: skip
        data.append({
            "type": "scatter", "mode": "markers", "name": name, "x": [point["took_s"] for point in some], "y": foretold,
            "error_y": limits, "marker": {"color": _color(at), "size": 6}, "meta": 0,
            "text": [html.escape(f"job {point['job']}, {point['policy']}") for point in some],
            "hovertemplate": "%{text}<br>foretold %{y:.3~g} s, took %{x:.3~g} s<extra>%{fullData.name}</extra>",
        })  # fmt: skip
    longest = max((max(point["took_s"], point["foretold_s"]) for point in points), default=1.0)
    shortest = max(min((min(point["took_s"], point["foretold_s"]) for point in points), default=1.0), 0.1)
    data.append(_diagonal([shortest, longest]))
    axis = {"type": "log"}
    made = figure(data, axis | {"title": title("time that was left (s)")}, axis | {"title": title("foretold (s)")})
    about = "Each point is one forecast with its interval; on the line it was right, above it too long."
    return Chart("ends", "Time left until the end", about, "Foretold against happened", made)


def _calibration(table: list[Mapping[str, Any]]) -> Chart:
    """Part of the jobs that ended before each foretold quantile."""
    data: list[Figure] = [_diagonal([0, 1])]
    for at, name in _WHEN.items():
        some = [row for row in table if row["at"] == at]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": name, "x": [row["quantile"] for row in some],
            "y": [row["below"] for row in some], "line": {"color": _color(at)}, "meta": 0,
            "hovertemplate": "%{y:.0%} ended before the quantile %{x:.0%}<extra>%{fullData.name}</extra>",
        })  # fmt: skip
    axis = {"range": [0, 1], "tickformat": ".0%"}
    made = figure(data, axis | {"title": title("foretold quantile")}, axis | {"title": title("ended before it")})
    about = (
        "On the line: as many jobs ended before a quantile as should. Flat: intervals are too wide; steep: too narrow."
    )
    return Chart("calibration", "Calibration", about, "Foretold quantiles against how often they were kept", made)


def _diagonal(ends: list[float]) -> Figure:
    look = {"color": "#888", "dash": "dot", "width": 1}
    return {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "line": look, "meta": 0, "hoverinfo": "skip"}
