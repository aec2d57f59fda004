"""One chart by itself: a page, and what a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from cotenant._version import __version__
from cotenant.core.errors import InputError
from cotenant.report.charts import Chart
from cotenant.report.page import NOT_BUILT, built, esc, page, place_of
from cotenant.report.schedule import SIZES, Schedule

HEIGHT = 470


@dataclass(frozen=True, slots=True)
class Figure:
    """`.show()` opens it in a browser, `.write_html(path)` writes one file, a notebook shows it by itself.

    `data` are its numbers: marks with a name, `x` and `y`. The page offers it as SVG and as CSV.
    """

    chart: Chart
    schedule: Schedule | None = None

    @property
    def data(self) -> Sequence[dict[str, Any]]:
        """One entry per curve, group of bars or policy."""
        return self.schedule.lines if self.schedule else self.chart.figure["marks"]

    def to_html(self) -> str:
        """A whole page, offline."""
        if not built():
            raise InputError(NOT_BUILT)
        names = {mark["name"]: mark["color"] for mark in self.chart.figure.get("marks", ()) if mark["name"]}
        shown = "" if self.chart.figure.get("legend") else "".join(
            f'<li><span class="swatch" style="background:{color}"></span>{esc(name)}</li>'
            for name, color in names.items()
        )  # fmt: skip
        body = [f'<main>{place_of(self.chart)}<ul class="legend">{shown}</ul></main>']
        cells = [{"label": "", "charts": {}, "schedule": self.schedule.as_dict()}] if self.schedule else []
        return page(self.chart.title, body, [] if self.schedule else [self.chart], __version__, cells, SIZES)

    def write_html(self, path: str | PathLike[str]) -> None:
        """Write the page."""
        text = self.to_html()
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def show(self) -> None:
        """Open the page in a browser."""
        import tempfile
        import webbrowser
        from pathlib import Path

        with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(self.to_html())
        webbrowser.open(Path(file.name).as_uri())

    def _repr_html_(self) -> str:
        """A frame of its own, so that neither the notebook nor another figure is touched by it."""
        height = HEIGHT if self.schedule is None else 900
        frame = f'sandbox="allow-scripts allow-downloads" style="width:100%;height:{height}px;border:0"'
        return f'<iframe title="{esc(self.chart.title)}" {frame} srcdoc="{esc(self.to_html())}"></iframe>'
