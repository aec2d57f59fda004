"""The charts of a report one by one, for notebooks and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.outcome import Outcome
from cotenant.report import charts
from cotenant.report.figure import Figure


@dataclass(frozen=True, slots=True)
class Plots:
    """Each method makes one figure: `.show()` it, or `.write_html(path)`."""

    outcomes: Sequence[Outcome]
    baseline: str = ""

    def jct(self) -> Figure:
        """Share of jobs by completion time."""
        return Figure(charts.jct_cdf(self._lines))

    def queue(self) -> Figure:
        """Share of jobs by time spent waiting."""
        return Figure(charts.queue_cdf(self._lines))

    def slowdown(self) -> Figure:
        """Share of jobs by completion time over duration."""
        return Figure(charts.slowdown_cdf(self._lines))

    def by_size(self) -> Figure:
        """Completion time by job size."""
        return Figure(charts.jct_by_size(self._lines))

    def utilisation(self) -> Figure:
        """GPUs in use over time."""
        return Figure(charts.utilisation(self._lines))

    def queue_length(self) -> Figure:
        """Jobs waiting over time."""
        return Figure(charts.queue_length(self._lines))

    def means(self) -> Figure:
        """Average completion time with intervals over seeds, against load where there are several."""
        from cotenant.core.errors import InputError
        from cotenant.report.stats import aggregate
        from cotenant.report.table import comparison_rows

        chart = charts.load_chart(self._lines, aggregate(comparison_rows(self.outcomes)))
        if chart is None:
            raise InputError("means need several seeds or loads: compare(..., seeds=range(5))")
        return Figure(chart)

    def gantt(self, policy: str = "", window_s: tuple[float, float] | None = None) -> Figure:
        """Who ran where, of one policy (the first unless named)."""
        from cotenant.core.errors import InputError, unknown
        from cotenant.report.schedule import schedule

        lines = self._lines
        names = [line.name for line in lines]
        if policy and policy not in names:
            raise unknown("policy", policy, names)
        drawn = schedule([lines[names.index(policy) if policy else 0]], window_s)
        if drawn is None:
            raise InputError("nothing ran, so there is nothing to draw")
        shown = policy or names[0]
        title = f"Who ran where under {shown}"
        return Figure(charts.Chart("gantt", title, drawn.note, f"Gantt chart of {shown}", {}, wide=True), drawn)

    @property
    def _lines(self) -> list[charts.Line]:
        return charts.lines_of(self.outcomes)
