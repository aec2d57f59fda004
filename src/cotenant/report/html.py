"""A comparison as one HTML file (`page.py`): winners, the table, paired differences, charts, the schedule.

All text that comes from the user is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from cotenant.core.outcome import Outcome
from cotenant.report.charts import Chart, Line, build_charts, cells_of, lines_of, load_chart
from cotenant.report.differences import HEADINGS, metrics_of, note_of, text_of
from cotenant.report.more_charts import differences, fairness, heat_map, slowdown_by_size, waterfall
from cotenant.report.page import esc, figures, page, place_of
from cotenant.report.paired import GROUP, Doubts
from cotenant.report.schedule import SIZES, Schedule, schedule
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

MOST_BARS = 12_000
"""Of all schedules of a report together; each has at least a twelfth of it."""


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
    policies = {line.outcome.policy: line for line in charted}
    over_all = [load_chart(charted, aggregates or ()), heat_map(shown), differences(lines, policies)]
    bars = max(MOST_BARS // max(len(sets), 2), MOST_BARS // 12)
    cells = [_cell(label, own, window_s, bars) for label, own in sets]
    whole = [chart for chart in over_all if chart is not None and chart.figure["marks"]]
    labels = [cell.label for cell in cells] if len(cells) > 1 else []
    body = [
        _header(outcomes, title, command),
        "<main>",
        _cards(shown) if not aggregates else "",
        _tables(shown, aggregates, charted, doubts),
        _differences(lines),
        _charts(whole, _all_charts(cells), charted, labels),
        _schedule(charted, labels) if any(cell.schedule for cell in cells) else "",
        "</main>",
    ]
    return page(title, body, whole, _version(outcomes), [cell.as_dict() for cell in cells], SIZES)


@dataclass(frozen=True, slots=True)
class _Cell:
    """What is charted of one cell of a sweep."""

    label: str
    charts: list[Chart]
    schedule: Schedule | None

    def as_dict(self) -> dict[str, Any]:
        drawn = self.schedule.as_dict() if self.schedule else None
        return {"label": self.label, "charts": figures(self.charts), "schedule": drawn}


def _cell(label: str, lines: list[Line], window_s: tuple[float, float] | None, bars: int) -> _Cell:
    made = [*build_charts(lines), slowdown_by_size(lines), waterfall(lines), fairness(lines)]
    kept = [chart for chart in made if chart is not None and chart.figure["marks"]]
    return _Cell(label, kept, schedule(lines, window_s, bars) if lines else None)


def _all_charts(cells: Sequence[_Cell]) -> list[Chart]:
    """Each chart that any cell has, once: its place is the same in all of them."""
    return list({chart.slug: chart for cell in reversed(cells) for chart in cell.charts}.values())


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
    listed = "".join(f"<div><dt>{esc(name)}</dt><dd>{esc(text)}</dd></div>" for name, text in facts)
    remarks = "".join(f'<p class="note">{esc(note)}</p>' for note in notes)
    return (
        f'<header>\n<p class="brand">Cotenant · policy comparison</p>\n<h1>{esc(title)}</h1>\n'
        f'<dl class="facts">{listed}</dl>\n<pre aria-label="Command"><code>{esc(command)}</code></pre>\n'
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
            f'<p class="who">{esc(who)}</p><p class="beside">{esc(beside)}</p></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _differences(lines: Sequence[Mapping[str, Any]]) -> str:
    """How policies differ from the baseline, with intervals."""
    metrics = metrics_of(lines)
    if not lines or not metrics:
        return ""
    keys = [key for key in GROUP if len({repr(line.get(key)) for line in lines}) > 1]
    head = "".join(f"<th scope='col'>{esc(name)}</th>" for name in ("policy", *keys, *(HEADINGS[m] for m in metrics)))
    body = []
    for line in lines:
        cells = "".join(f"<td>{esc(line.get(key))}</td>" for key in keys)
        for metric in metrics:
            made = line[metric]
            sign = "" if made is None or not made.clear else ' class="less"' if made.mean < 0 else ' class="more"'
            cells += f"<td{sign}>{esc(text_of(made))}</td>"
        body.append(f"<tr><th scope='row'>{esc(line['policy'])}</th>{cells}</tr>")
    return (
        f'<section id="differences"><h2>Against {esc(lines[0]["baseline"])}</h2>'
        '<div class="box" tabindex="0" role="region" aria-label="Paired differences"><table class="plain">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<p class="note">Same jobs, pair by pair. {esc(note_of(lines))}.</p></section>'
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
        about = f' title="{esc(meaning)}"' if meaning else ""
        name, _, unit = text.partition(" (")
        small = f"<small>({esc(unit)}</small>" if unit else ""
        button = f'<button type="button"{about}><span>{esc(name)}</span>{small}</button>'
        return f'<th scope="col" aria-sort="none"{kind}>{button}</th>'

    head = heading("policy", "", ' class="text"') + "".join(heading(k, "", ' class="text"') for k in keys)
    head += "".join(heading(column.heading, column.meaning, "") for column in columns)
    body = []
    for i, row in enumerate(rows):
        policy = str(row.get("policy", ""))
        dot = f'<span class="swatch" style="background:{colors[policy]}"></span>' if policy in colors else ""
        cells = [f'<th scope="row" data-value="{esc(policy)}">{dot}{esc(policy)}</th>']
        for key in keys:
            value = "" if row.get(key) is None else str(row[key])
            cells.append(f'<td class="text" data-value="{esc(value)}">{esc(value)}</td>')
        for column in columns:
            raw = column.values[i]
            best = ' class="best"' if column.best[i] else ""
            exact = f' title="{raw:,.1f} s"' if raw is not None and column.key.endswith("_s") else ""
            value = "" if raw is None else repr(raw)
            cells.append(f'<td{best}{exact} data-value="{value}">{esc(column.texts[i])}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{esc(caption)}">'
        f'<table class="sortable" aria-label="{esc(caption)}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


def _charts(whole: Sequence[Chart], charts: Sequence[Chart], lines: Sequence[Line], labels: Sequence[str]) -> str:
    """Charts over all runs, then those of one cell, with a selector where there are several cells."""
    if not charts and not whole:
        return ""
    chips = "".join(
        f'<button type="button" aria-pressed="true" data-index="{line.index}">'
        f'<span class="swatch" style="background:{line.color}"></span>{esc(line.name)}</button>'
        for line in lines
    )
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
        f'<div class="chips" role="group" aria-label="Policies shown in the charts">{_choice(labels)}{chips}'
        '<button type="button" id="data" title="All figures as JSON">Data</button></div>\n'
        '<noscript><p class="note">The charts need JavaScript; the table has the numbers.</p></noscript>\n'
        f'<div class="grid">\n{figures}\n</div></section>'
    )


def _choice(labels: Sequence[str]) -> str:
    """Which cell of a sweep is seen."""
    options = "".join(f'<option value="{at}">{esc(label)}</option>' for at, label in enumerate(labels))
    return f'<label class="choice">Runs <select class="cell">{options}</select></label>' if labels else ""


def _schedule(lines: Sequence[Line], labels: Sequence[str]) -> str:
    tabs = "".join(
        f'<button type="button" role="tab" id="tab-{line.index}" aria-controls="plot-gantt" '
        f'aria-selected="{"true" if not line.index else "false"}" tabindex="{0 if not line.index else -1}">'
        f"{esc(line.name)}</button>"
        for line in lines
    )
    inner = f'{_choice(labels)}<div class="tabs" role="tablist" aria-label="Policy of the Gantt chart">{tabs}</div>'
    note = "Each row is a GPU, or part of a shared one. The window is where most jobs wait, unless --gantt names it."
    chart = Chart("gantt", "Who ran where", note, "Gantt chart of jobs on GPUs", {}, wide=True)
    return f'<section id="schedule"><h2>Schedule</h2>{place_of(chart, inner)}</section>'
