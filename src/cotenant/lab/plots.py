"""The charts of a report as Plotly figures, for notebooks and files; Plotly is loaded at the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cotenant.core.outcome import Outcome
from cotenant.report import charts

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Plots:
    """Each method makes one figure: `.show()` it, or `.write_html(...)`."""

    outcomes: Sequence[Outcome]
    baseline: str = ""

    def jct(self) -> go.Figure:
        """Share of jobs by completion time."""
        return _figure(charts.jct_cdf(self._lines))

    def queue(self) -> go.Figure:
        """Share of jobs by time spent waiting."""
        return _figure(charts.queue_cdf(self._lines))

    def slowdown(self) -> go.Figure:
        """Share of jobs by completion time over duration."""
        return _figure(charts.slowdown_cdf(self._lines))

    def by_size(self) -> go.Figure:
        """Completion time by job size."""
        return _figure(charts.jct_by_size(self._lines))

    def utilisation(self) -> go.Figure:
        """GPUs in use over time."""
        return _figure(charts.utilisation(self._lines))

    def queue_length(self) -> go.Figure:
        """Jobs waiting over time."""
        return _figure(charts.queue_length(self._lines))

    def means(self) -> go.Figure:
        """Average completion time with intervals over seeds, against load where there are several."""
        from cotenant.core.errors import InputError
        from cotenant.report.stats import aggregate
        from cotenant.report.table import comparison_rows

        chart = charts.load_chart(self._lines, aggregate(comparison_rows(self.outcomes)))
        if chart is None:
            raise InputError("means need several seeds or loads: compare(..., seeds=range(5))")
        return _figure(chart)

    def gantt(self, policy: str = "", window_s: tuple[float, float] | None = None) -> go.Figure:
        """Who ran where, of one policy (the first unless named)."""
        from cotenant.core.errors import InputError, unknown
        from cotenant.report.schedule import gantt

        names = [line.name for line in self._lines]
        if policy and policy not in names:
            raise unknown("policy", policy, names)
        made = gantt(self._lines, window_s)
        if made is None:
            raise InputError("nothing ran, so there is nothing to draw")
        chart, bars = made
        chart.figure["data"] = bars[names.index(policy) if policy else 0]
        return _figure(chart)

    @property
    def _lines(self) -> list[charts.Line]:
        return charts.lines_of(self.outcomes)


def _figure(chart: charts.Chart) -> go.Figure:
    import plotly.graph_objects as go

    made = go.Figure(chart.figure["data"], {**chart.figure["layout"], "showlegend": True})
    made.update_layout(title=chart.title, template="plotly_white")
    return made
