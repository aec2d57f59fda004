"""An analysis as one HTML file that opens anywhere: the sections, each with its advice, and charts of the main ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.report.analysis_sections import Section, headline, sections
from cotenant.report.charts import PALETTE, Chart, Figure, figure
from cotenant.report.page import esc, page, place_of

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def write_page(report: Mapping[str, Any], path: str, command: str) -> None:
    """Write the page of `cotenant analyze`."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(render(report, command))


def render(report: Mapping[str, Any], command: str) -> str:
    """The page as text; it depends on the report only."""
    charts = _charts(report)
    by_section = {chart.slug.partition("-")[0]: [] for chart in charts}  # type: dict[str, list[Chart]]
    for chart in charts:
        by_section[chart.slug.partition("-")[0]].append(chart)
    body = [
        _header(report, command),
        "<main>",
        *(_section(section, by_section.get(section.slug, ())) for section in sections(report)),
        _lacking(report),
        "</main>",
    ]
    return page(f"Analysis of {report['source']}", body, charts, version=str(report["version"]))


def _header(report: Mapping[str, Any], command: str) -> str:
    facts = "".join(
        f"<div><dt>{esc(name.replace('_', ' '))}</dt><dd>{esc(text)}</dd></div>"
        for name, text in report["definitions"].items()
    )
    notes = "".join(f'<p class="note">{esc(note)}</p>' for note in report["notes"])
    return (
        f'<header>\n<p class="brand">Cotenant · analysis</p>\n<h1>{esc(report["source"])}</h1>\n'
        f"<p>{esc(headline(report))}</p>"
        f'<pre aria-label="Command"><code>{esc(command)}</code></pre>\n<dl class="facts">{facts}</dl>{notes}</header>'
    )


def _section(section: Section, charts: Sequence[Chart]) -> str:
    head = "".join(
        f'<th scope="col"{" class=text" if not at else ""} style="padding:10px">{esc(name)}</th>'
        for at, name in enumerate(section.columns)
    )
    rows = "\n".join(
        f'<tr><th scope="row">{esc(row[0])}</th>{"".join(f"<td>{esc(cell)}</td>" for cell in row[1:])}</tr>'
        for row in section.rows
    )
    table = (
        f'<div class="box" tabindex="0" role="region" aria-label="{esc(section.title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    advice = f"<p><strong>{esc(section.advice)}</strong></p>" if section.advice else ""
    remarks = "".join(f'<p class="note">{esc(text)}</p>' for text in section.remarks)
    figures = "".join(place_of(chart) for chart in charts)
    grid = f'<div class="grid" style="margin-top:16px">{figures}</div>' if figures else ""
    return f'<section id="{section.slug}"><h2>{esc(section.title)}</h2>{advice}{table}{remarks}{grid}</section>'


def _lacking(report: Mapping[str, Any]) -> str:
    items = "".join(
        f"<li><strong>{esc(name)}</strong>: {esc(means)}</li>" for name, means in report["lacking_means"].items()
    )
    return f'<section id="lacking"><h2>What the log does not say</h2><ul>{items}</ul></section>' if items else ""


def _charts(report: Mapping[str, Any]) -> list[Chart]:
    sizes, tenants, delay, savings = (report[name] for name in ("by_size", "by_tenant", "delay", "savings"))
    percent = {"as": "percent", "zero": True}
    charts = [
        Chart(
            "runs-shares", "Jobs and GPU-hours by size", "Part of all jobs, and of all GPU-hours.", "Shares by size",
            _bars(sizes, {"jobs": "jobs_share", "GPU-hours": "gpu_hours_share"}, percent),
        ),
        Chart(
            "runs-times", "Run time by size", "Median and 95th percentile, on a log scale.",
            "Run times by size",
            _bars(sizes, {"median": "p50_run_s", "p95": "p95_run_s"}, {"kind": "log", "as": "span"}, "dot"),
        ),
        Chart(
            "cycles-hours", "Submissions by hour", report["definitions"]["hours"].capitalize() + ".",
            "Submissions by hour of the day", _counts([f"{at:02d}" for at in range(24)], report["by_hour"]),
        ),
    ]  # fmt: skip
    if report["by_weekday"]:
        charts.append(
            Chart(
                "cycles-days", "Submissions by weekday", "All weeks of the log.", "Submissions by weekday",
                _counts(_DAYS, report["by_weekday"]),
            )
        )  # fmt: skip
    if tenants:
        top = dict(list(tenants.items())[:20])
        charts.append(
            Chart(
                "tenants-shares", "Tenants", "Part of all jobs, and of all GPU-hours.", "Shares of tenants",
                _bars(top, {"jobs": "jobs_share", "GPU-hours": "gpu_hours_share"}, percent), wide=True,
            )
        )  # fmt: skip
    if delay and delay["by_size"]:
        charts.append(
            Chart(
                "delay-shares", "Fragmentation in waiting", "Part of waiting time, and of waiting jobs.",
                "Fragmentation by size",
                _bars(delay["by_size"], {"time": "fragmentation_time_share", "jobs": "fragmentation_jobs_share"},
                      {**percent, "range": [0, 1]}),
            )
        )  # fmt: skip
    if savings:
        charts.append(
            Chart(
                "savings-bars", "Completion time saved", "Of the mean completion time in the most congested stretch.",
                "Savings by change", _bars(savings["changes"], {"saved": "saved_jct_share"}, percent),
            )
        )  # fmt: skip
    return charts


def _bars(
    rows: Mapping[str, Mapping[str, Any]], series: Mapping[str, str], axis: Mapping[str, Any], kind: str = "bar"
) -> Figure:
    """Groups of bars (or dots, on a log scale): one group per row, one colour per column."""
    names = [name.replace("_", " ") for name in rows]
    marks = [
        {"type": kind, "name": name, "color": PALETTE[at], "x": list(range(len(names))),
         "y": [row[key] for row in rows.values()]}
        for at, (name, key) in enumerate(series.items())
    ]  # fmt: skip
    return figure(marks, {"kind": "band", "names": names}, axis, legend=len(series) > 1)


def _counts(names: Sequence[str], values: Sequence[int]) -> Figure:
    mark = {"type": "bar", "name": "", "color": PALETTE[0], "x": list(range(len(names))), "y": list(values)}
    return figure([mark], {"kind": "band", "names": list(names)}, {"zero": True, "title": "jobs"})
