"""A comparison as one HTML file that opens anywhere, offline: the table, the charts, Plotly itself inside.

A content security policy in the page forbids every request, so the file cannot depend on anything outside it.
All text that comes from the user is escaped, and the bytes depend on the arguments only: no time of day, no
random ids, nothing about the machine that ran the simulation.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from cotenant.core.outcome import Outcome
from cotenant.report.assets import CSS, JS
from cotenant.report.charts import Chart, Figure, Line, build_charts, cells_of, lines_of, load_chart
from cotenant.report.differences import HEADINGS, metrics_of, note_of, text_of
from cotenant.report.more_charts import differences, fairness, heat_map, slowdown_by_size, waterfall
from cotenant.report.paired import GROUP, Doubts
from cotenant.report.schedule import gantt
from cotenant.report.table import (
    FIELDS,
    MORE_FIELDS,
    ShownColumn,
    aggregate_columns,
    columns_of,
    comparison_rows,
    varying,
)
from cotenant.report.units import count, duration, number, percent

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def write_html(
    outcomes: Sequence[Outcome],
    path: str | PathLike[str],
    *,
    title: str,
    command: str,
    rows: Sequence[Mapping[str, Any]] | None = None,
    aggregates: Sequence[Mapping[str, Any]] | None = None,
    window_s: tuple[float, float] | None = None,
    lines: Sequence[Mapping[str, Any]] = (),
    doubts: Doubts | None = None,
) -> None:
    """Write the report of a comparison.

    `rows` are comparison rows for the table (made from `outcomes` when not given; there may be more rows than
    outcomes). `aggregates` are rows of `stats.aggregate`, shown first with a chart of their intervals. Charts
    show one cell of a sweep (a load, a cluster) at a time, seeds pooled. `window_s`, on the clock of the trace, is the
    window of the Gantt chart; without it the time of most waiting is shown. `lines` are paired differences, `doubts`
    says which policies cannot be told from the best one.
    """
    text = render_html(
        outcomes, title=title, command=command, rows=rows, aggregates=aggregates, window_s=window_s, lines=lines,
        doubts=doubts,
    )  # fmt: skip
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def render_html(
    outcomes: Sequence[Outcome],
    *,
    title: str,
    command: str,
    rows: Sequence[Mapping[str, Any]] | None = None,
    aggregates: Sequence[Mapping[str, Any]] | None = None,
    window_s: tuple[float, float] | None = None,
    lines: Sequence[Mapping[str, Any]] = (),
    doubts: Doubts | None = None,
) -> str:
    """The page of `write_html` as text."""
    shown = list(rows) if rows is not None else list(comparison_rows(outcomes))
    sets = [(label, lines_of(runs)) for label, runs in cells_of(outcomes).items()]
    charted = sets[0][1] if sets else []
    colors = {line.outcome.policy: line.color for line in charted}
    over_all = [load_chart(charted, aggregates or ()), heat_map(shown), differences(lines, colors)]
    drawn = [_set(label, policies, window_s) for label, policies in sets]
    first = drawn[0] if drawn else _Set("", [], None)
    whole = [chart for chart in over_all if chart is not None and chart.figure["data"]]
    body = [
        _header(outcomes, title, command),
        "<main>",
        _cards(shown) if not aggregates else "",
        _tables(shown, aggregates, charted, doubts),
        _differences(lines),
        _charts(whole, first.charts, charted, [one.label for one in drawn]),
        _gantt(first.bars[0], charted) if first.bars else "",
        "</main>",
    ]
    more = [] if len(drawn) < 2 else drawn
    return page(title, body, [*whole, *first.charts], first.bars, _version(outcomes), more)


@dataclass(frozen=True, slots=True)
class _Set:
    """The charts of one cell of a sweep; all sets have the same places."""

    label: str
    charts: list[Chart]
    bars: tuple[Chart, list[list[Figure]]] | None


def _set(label: str, lines: list[Line], window_s: tuple[float, float] | None) -> _Set:
    made = [*build_charts(lines), slowdown_by_size(lines), waterfall(lines), fairness(lines)]
    kept = [chart for chart in made if chart is not None and chart.figure["data"]]
    return _Set(label, kept, gantt(lines, window_s) if lines else None)


def page(
    title: str, body: Sequence[str], charts: Sequence[Chart],
    bars: tuple[Chart, list[list[Figure]]] | None = None, version: str = "", sets: Sequence[_Set] = (),
) -> str:  # fmt: skip
    """A whole file around a body whose charts have been given their places (`place_of`).

    Plotly is inside once, packed: browsers unpack it by themselves, and the file has less than half of the size.
    """
    import base64
    import gzip

    from plotly.offline import get_plotlyjs

    footer = (
        f"<footer>Made by Cotenant {_esc(version)}. "
        "This file needs no network: data, charts and style are inside it.</footer>"
    )
    library = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_esc(title)}</title>",
            f"<style>{CSS}</style>",
            "</head>",
            "<body>",
            *(part for part in (*body, footer) if part),
            f'<script type="application/json" id="report-data">{_json(charts, bars, sets)}</script>',
            f'<script type="application/gzip" id="plotly-js">{library}</script>',
            f"<script>{JS}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _esc(value: object) -> str:
    return html.escape(str(value), quote=True)


def _json(charts: Sequence[Chart], bars: tuple[Chart, list[list[Figure]]] | None, sets: Sequence[_Set] = ()) -> str:
    """The figures for the script, with nothing in it that could end the script element early."""
    data: dict[str, Any] = {
        "charts": _figures(charts),
        "gantt": {"layout": bars[0].figure["layout"], "lines": bars[1]} if bars else None,
        "sets": [{"label": one.label, "charts": _figures(one.charts)} for one in sets],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figures(charts: Sequence[Chart]) -> list[dict[str, Any]]:
    return [{"slug": c.slug, "data": c.figure["data"], "layout": c.figure["layout"]} for c in charts]


def _version(outcomes: Sequence[Outcome]) -> str:
    return str(outcomes[0].summary.get("version") or "") if outcomes else ""


def _header(outcomes: Sequence[Outcome], title: str, command: str) -> str:
    facts: list[tuple[str, str]] = []
    notes: tuple[str, ...] = ()
    if outcomes:
        first = outcomes[0]
        work = first.workload
        notes = work.notes
        facts = [
            ("Workload", work.source),
            ("Jobs", count(len(work))),
            ("Submitted over", duration(work.span_s)),
            ("Cluster", f"{first.cluster} ({count(first.cluster_gpus)} GPUs)"),
            ("Placement", ", ".join(dict.fromkeys(outcome.placement for outcome in outcomes))),
        ]
        loads = dict.fromkeys(str(o.summary["load"]) for o in outcomes if o.summary.get("load") is not None)
        load = number(work.load(first.cluster_gpus)) if first.cluster_gpus else None
        if len(loads) > 1:
            facts.insert(3, ("Offered loads", ", ".join(loads)))
        elif load is not None:
            facts.insert(3, ("Offered load", percent(load)))
        seeds = dict.fromkeys(str(o.summary["seed"]) for o in outcomes if o.summary.get("seed") is not None)
        if seeds:
            facts.append(("Seed" if len(seeds) == 1 else "Seeds", ", ".join(seeds)))
        if _version(outcomes):
            facts.append(("Version", _version(outcomes)))
    listed = "".join(f"<div><dt>{_esc(name)}</dt><dd>{_esc(text)}</dd></div>" for name, text in facts)
    remarks = "".join(f'<p class="note">{_esc(note)}</p>' for note in notes)
    return (
        f'<header>\n<p class="brand">Cotenant · policy comparison</p>\n<h1>{_esc(title)}</h1>\n'
        f'<dl class="facts">{listed}</dl>\n<pre aria-label="Command"><code>{_esc(command)}</code></pre>\n'
        f"{remarks}</header>"
    )


def _cards(rows: Sequence[Mapping[str, Any]]) -> str:
    """The winner of four columns at a glance, and how far behind the last one is."""
    if len(rows) < 2:
        return ""
    cards = []
    for key, what, sign in (
        ("avg_jct_s", "Lowest average completion time", -1),
        ("p99_jct_s", "Lowest p99 completion time", -1),
        ("avg_queue_s", "Shortest average queue", -1),
        ("useful_utilization", "Highest useful GPU utilisation", 1),
    ):
        known = [(value, row) for row in rows if (value := number(row.get(key))) is not None]
        if len(known) < 2:
            continue
        best, worst = (max, min) if sign > 0 else (min, max)
        top, low = best(known, key=lambda pair: pair[0]), worst(known, key=lambda pair: pair[0])
        text = percent if sign > 0 else duration
        who, beside = top[1].get("policy"), f"last: {low[1].get('policy')}, {text(low[0])}"
        if low[0] == top[0]:
            who, beside = "every policy", "no difference"
        cards.append(
            f'<div class="card"><p class="what">{what}</p><p class="value">{text(top[0])}</p>'
            f'<p class="who">{_esc(who)}</p><p class="beside">{_esc(beside)}</p></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _differences(lines: Sequence[Mapping[str, Any]]) -> str:
    """How policies differ from the baseline, with intervals."""
    metrics = metrics_of(lines)
    if not lines or not metrics:
        return ""
    keys = [key for key in GROUP if len({repr(line.get(key)) for line in lines}) > 1]
    head = "".join(f"<th scope='col'>{_esc(name)}</th>" for name in ("policy", *keys, *(HEADINGS[m] for m in metrics)))
    body = []
    for line in lines:
        cells = "".join(f"<td>{_esc(line.get(key))}</td>" for key in keys)
        for metric in metrics:
            made = line[metric]
            sign = "" if made is None or not made.clear else ' class="less"' if made.mean < 0 else ' class="more"'
            cells += f"<td{sign}>{_esc(text_of(made))}</td>"
        body.append(f"<tr><th scope='row'>{_esc(line['policy'])}</th>{cells}</tr>")
    return (
        f'<section id="differences"><h2>Against {_esc(lines[0]["baseline"])}</h2>'
        '<div class="box" tabindex="0" role="region" aria-label="Paired differences"><table class="plain">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<p class="note">Same jobs, pair by pair. {_esc(note_of(lines))}.</p></section>'
    )


def _tables(
    rows: Sequence[Mapping[str, Any]], aggregates: Sequence[Mapping[str, Any]] | None, lines: Sequence[Line],
    doubts: Doubts | None,
) -> str:  # fmt: skip
    colors = {line.outcome.policy: line.color for line in lines}
    hint = (
        '<p class="note">Click a heading to sort. The best value of a column is highlighted where it can be told from'
        " the others.</p>"
    )
    if not aggregates:
        table = _table(
            "Comparison of policies", rows, columns_of(rows, doubts, (*FIELDS, *MORE_FIELDS)), varying(rows), colors
        )
        return f'<section id="table"><h2>Comparison</h2>{table}{hint}</section>'
    keys = [key for key in varying(aggregates) if key != "seed"]
    means = _table("Means over seeds", aggregates, aggregate_columns(aggregates, doubts=doubts), keys, colors)
    every = _table("All runs", rows, columns_of(rows), varying(rows), colors)
    runs = max(int(row.get("runs", 1)) for row in aggregates)
    note = f'<p class="note">Mean ± 95 % confidence interval over {runs} seeds (Student’s t).</p>' if runs > 1 else ""
    return (
        f'<section id="table"><h2>Comparison</h2>{means}{note}{hint}'
        f"<details><summary>All {len(rows)} runs</summary>{every}</details></section>"
    )


def _table(
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[ShownColumn],
    keys: Sequence[str],
    colors: Mapping[str, str],
) -> str:
    def heading(text: str, meaning: str, kind: str) -> str:
        about = f' title="{_esc(meaning)}"' if meaning else ""
        name, _, unit = text.partition(" (")
        small = f"<small>({_esc(unit)}</small>" if unit else ""
        button = f'<button type="button"{about}><span>{_esc(name)}</span>{small}</button>'
        return f'<th scope="col" aria-sort="none"{kind}>{button}</th>'

    head = heading("policy", "", ' class="text"') + "".join(heading(k, "", ' class="text"') for k in keys)
    head += "".join(heading(column.heading, column.meaning, "") for column in columns)
    body = []
    for i, row in enumerate(rows):
        policy = str(row.get("policy", ""))
        dot = f'<span class="swatch" style="background:{colors[policy]}"></span>' if policy in colors else ""
        cells = [f'<th scope="row" data-value="{_esc(policy)}">{dot}{_esc(policy)}</th>']
        for key in keys:
            value = "" if row.get(key) is None else str(row[key])
            cells.append(f'<td class="text" data-value="{_esc(value)}">{_esc(value)}</td>')
        for column in columns:
            raw = column.values[i]
            best = ' class="best"' if column.best[i] else ""
            exact = f' title="{raw:,.1f} s"' if raw is not None and column.key.endswith("_s") else ""
            value = "" if raw is None else repr(raw)
            cells.append(f'<td{best}{exact} data-value="{value}">{_esc(column.texts[i])}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{_esc(caption)}">'
        f'<table class="sortable" aria-label="{_esc(caption)}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


def _charts(whole: Sequence[Chart], charts: Sequence[Chart], lines: Sequence[Line], labels: Sequence[str]) -> str:
    """Charts over all runs, then those of one cell, with a selector where there are several cells."""
    if not charts and not whole:
        return ""
    chips = "".join(
        f'<button type="button" aria-pressed="true" data-index="{line.index}">'
        f'<span class="swatch" style="background:{line.color}"></span>{_esc(line.name)}</button>'
        for line in lines
    )
    choice = ""
    if len(labels) > 1:
        options = "".join(f'<option value="{at}">{_esc(label)}</option>' for at, label in enumerate(labels))
        choice = f'<label class="choice">Runs <select id="set">{options}</select></label>'
    seeds = max((len(line.runs) for line in lines), default=1)
    note = ""
    if seeds > 1:
        note = (
            f'<p class="note">Distributions pool the jobs of {seeds} seeds, and bands span them; curves over time and'
            " the schedule are those of the first seed.</p>"
        )
    figures = "\n".join(place_of(chart) for chart in (*whole, *charts))
    return (
        f'<section id="charts"><h2>Charts</h2>{note}'
        f'<div class="legend" role="group" aria-label="Policies shown in the charts">{choice}{chips}'
        '<button type="button" id="data" title="All figures as JSON">Data</button></div>\n'
        '<noscript><p class="note">The charts need JavaScript; the table has the numbers.</p></noscript>\n'
        f'<div class="grid">\n{figures}\n</div></section>'
    )


def _gantt(chart: Chart, lines: Sequence[Line]) -> str:
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{line.index}" aria-controls="plot-gantt" '
        f'aria-selected="{"true" if not line.index else "false"}" tabindex="{0 if not line.index else -1}">'
        f"{_esc(line.name)}</button>"
        for line in lines
    )
    inner = f'<div class="tabs" role="tablist" aria-label="Policy of the Gantt chart">{tabs}</div>'
    return f'<section id="schedule"><h2>Schedule</h2>{place_of(chart, inner)}</section>'


def place_of(chart: Chart, before: str = "") -> str:
    """Where the script of the page draws a chart, with its heading and explanation."""
    wide = ' class="wide"' if chart.wide else ""
    height = chart.figure["layout"].get("height")
    size = f' style="min-height:{height}px"' if height else ""
    return (
        f'<figure{wide} id="{chart.slug}"><figcaption><h3>{_esc(chart.title)}</h3><p>{_esc(chart.note)}</p>'
        f'</figcaption>{before}<div class="plot" id="plot-{chart.slug}" role="img" '
        f'aria-label="{_esc(chart.label)}"{size}></div></figure>'
    )
