"""How right forecasts were, as one HTML file: foretold against happened, and how often each quantile was kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant._version import __version__
from cotenant.report.charts import PALETTE, Chart, Figure, figure
from cotenant.report.page import esc, page, place_of

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
        f'<span><span class="swatch" style="background:{_color(at)}"></span>{esc(_WHEN[at])}</span> ' for at in _WHEN
    )
    body = [
        '<header>\n<p class="brand">Cotenant · forecasts</p>\n<h1>Forecasts against what happened</h1>',
        f"<p>{about}</p></header>",
        f'<main><section id="charts"><div class="chips">{legend}</div>',
        f'<div class="grid">{"".join(place_of(chart) for chart in charts)}</div></section></main>',
    ]  # fmt: skip
    return page("Forecasts", body, charts, version=__version__)


def _color(at: str) -> str:
    return PALETTE[list(_WHEN).index(at)]


def _ends(points: list[Mapping[str, Any]]) -> Chart:
    """Each forecast as a point with its interval."""
    marks: list[Figure] = []
    for at, name in _WHEN.items():
        some = [point for point in points if point["at"] == at]
        columns = {"y": "foretold_s", "x": "took_s", "low": "low_s", "high": "high_s"}
        mark = {column: [point[key] for point in some] for column, key in columns.items()}
        marks.append({"type": "dot", "name": name, "color": _color(at), **mark})
    longest = max((max(point["took_s"], point["foretold_s"]) for point in points), default=1.0)
    shortest = max(min((min(point["took_s"], point["foretold_s"]) for point in points), default=1.0), 0.1)
    marks.append(_diagonal([shortest, longest]))
    axis = {"kind": "log", "as": "span"}
    made = figure(marks, axis | {"title": "time that was left"}, axis | {"title": "foretold"})
    about = "Each point is one forecast with its interval; on the line it was right, above it too long."
    return Chart("ends", "Time left until the end", about, "Foretold against happened", made)


def _calibration(table: list[Mapping[str, Any]]) -> Chart:
    """Part of the jobs that ended before each foretold quantile."""
    marks: list[Figure] = [_diagonal([0, 1])]
    for at, name in _WHEN.items():
        some = [row for row in table if row["at"] == at]
        x, y = [row["quantile"] for row in some], [row["below"] for row in some]
        marks.append({"type": "line", "points": True, "name": name, "color": _color(at), "x": x, "y": y})
    axis = {"range": [0, 1], "as": "percent"}
    made = figure(marks, axis | {"title": "foretold quantile"}, axis | {"title": "ended before it"})
    about = (
        "On the line: as many jobs ended before a quantile as should. Flat: intervals are too wide; steep: too narrow."
    )
    return Chart("calibration", "Calibration", about, "Foretold quantiles against how often they were kept", made)


def _diagonal(ends: list[float]) -> Figure:
    return {"type": "line", "name": "", "color": "#888888", "dash": "2 3", "x": ends, "y": ends, "quiet": True}
