"""Comparisons and single runs as tables on the terminal.

A row is a plain dict of raw numbers in SI units, so that the same rows feed the terminal, the HTML page and
JSON; `columns_of` turns them into text. Wall time and memory of the simulator itself stay out of comparisons:
they differ from run to run, and two reports of the same comparison should be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cotenant.core.outcome import Outcome
from cotenant.report.paired import Doubts, groups_of
from cotenant.report.standing import figures_of
from cotenant.report.stats import Estimate
from cotenant.report.stats import aggregate as aggregate
from cotenant.report.units import (
    ABSENT,
    Unit,
    common_unit,
    count,
    decimals_for,
    duration,
    duration_column,
    number,
    percent,
    significant,
)
from cotenant.report.wide import print_in_parts, show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A column of the comparison: where its value is, its heading, how it is written, which end is good."""

    key: str
    heading: str
    kind: str
    better: int
    meaning: str


FIELDS = (
    Field("unfinished", "unfinished", "count", -1, "jobs that had not finished when the run ended"),
    Field("avg_jct_s", "avg JCT", "time", -1, "mean job completion time: finish minus submission"),
    Field("jct_ratio", "vs best", "ratio", 0, "mean JCT over the best mean JCT in this table"),
    Field("p50_jct_s", "p50 JCT", "time", -1, "median job completion time"),
    Field("p95_jct_s", "p95 JCT", "time", -1, "95th percentile of job completion time"),
    Field("p99_jct_s", "p99 JCT", "time", -1, "99th percentile of job completion time"),
    Field("avg_queue_s", "avg queue", "time", -1, "mean time a job spent waiting for GPUs"),
    Field("wdmr", "missed", "percent", -1, "weighted deadline miss rate: value not earned, over jobs with deadlines"),
    Field("value_earned", "value", "amount", 1, "value earned by jobs with deadlines"),
    Field("makespan_s", "makespan", "time", -1, "first submission to last completion"),
    Field("gpu_utilization", "GPU util", "percent", 1, "GPU time allocated over GPU time available"),
    Field("goodput", "goodput", "fraction", 1, "work finished, in GPU-seconds as asked, over GPU-seconds held"),
    Field("preemptions", "preempt.", "count", -1, "times a running job was stopped"),
    Field("restarts", "restarts", "count", -1, "starts after a failure or a lost node"),
    Field("lost_gpu_h", "lost GPU-h", "amount", -1, "GPU-hours spent on restarts and lost work"),
    Field("network_lost_gpu_h", "net GPU-h", "amount", -1, "GPU-hours of work not done because links were shared"),
    Field("nodes_asleep", "asleep", "amount", 1, "nodes asleep, mean over the run"),
    Field("wakeups_per_day", "wakes/day", "amount", -1, "times a day that nodes were woken"),
    Field("saved_kwh", "saved kWh", "amount", 1, "energy that sleeping nodes did not take, cooling included"),
    Field("jobs_delayed_by_waking", "delayed", "count", -1, "jobs that waited although sleeping nodes could hold them"),
    Field("fairness_jain", "fairness", "fraction", 1, "Jain's index; 1 is perfectly even"),
)
"""The numeric columns, in the order shown."""
MORE_FIELDS = (
    Field(
        "steady_utilization",
        "steady util",
        "percent",
        0,
        "the same while jobs keep coming: from a tenth to nine tenths",
    ),
    Field("useful_utilization", "useful util", "percent", 1, "GPU time of finished work over GPU time available"),
    Field("large_jct_s", "large JCT", "time", -1, "mean completion time of jobs with more than 8 GPUs"),
    Field(
        "worst_tenth",
        "worst 10 %",
        "ratio",
        -1,
        "completion time over an equal share's, mean of the worst tenth of jobs",
    ),
    Field("tenants_jain", "tenants", "fraction", 1, "Jain's index over tenants' shares; 1 is even"),
)
"""Further columns, for pages and data frames: a terminal has no room for them."""


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column ready to show: heading, one text per row, raw values, and which rows hold the best value."""

    key: str
    heading: str
    meaning: str
    texts: list[str]
    values: list[float | None]
    best: list[bool]


def comparison_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """One row per outcome, in their order: summary, `lost_gpu_h`, `unfinished`, `jct_ratio`."""
    rows: list[Row] = []
    for outcome in outcomes:
        own = {"policy": outcome.policy, "placement": outcome.placement, "cluster": outcome.cluster}
        row: Row = {**own, **outcome.summary, **own}
        lost = number(row.get("lost_gpu_s"))
        row["unfinished"] = int(outcome.measured.sum()) - int(outcome.finished.sum())
        row["lost_gpu_h"] = None if lost is None else lost / 3600
        used, good = number(row.get("gpu_utilization")), number(row.get("goodput"))
        row["useful_utilization"] = None if used is None or good is None else used * good
        rows.append({**row, **figures_of(outcome)})
    known = [value for value in (number(row.get("avg_jct_s")) for row in rows) if value is not None]
    best = min(known, default=0.0)
    for row in rows:
        jct = number(row.get("avg_jct_s"))
        row["jct_ratio"] = jct / best if jct is not None and best > 0 else None
    return rows


def best_of(values: Sequence[float | None], better: int) -> list[bool]:
    """Which values are the best of their column; none where the column has no direction or does not vary."""
    known = [value for value in values if value is not None]
    if not better or len(known) < 2 or min(known) == max(known):
        return [False] * len(values)
    best = max(known) if better > 0 else min(known)
    slack = 1e-9 * abs(best)
    return [value is not None and abs(value - best) <= slack for value in values]


def columns_of(
    rows: Sequence[Mapping[str, Any]], doubts: Doubts | None = None, fields: Sequence[Field] = FIELDS
) -> list[ShownColumn]:
    """The numeric columns of comparison rows as text, leaving out those that no row has.

    The best of a column is marked per group of rows that compare, and only where nobody is in `doubts`.
    """
    columns: list[ShownColumn] = []
    for spec in fields:
        values = [number(row.get(spec.key)) for row in rows]
        if all(value is None for value in values) or (spec.key == "unfinished" and not any(values)):
            continue
        unit, texts = _texts(spec.kind, values)
        heading = f"{spec.heading} ({unit})" if unit else spec.heading
        best = _best_per_group(rows, values, spec, doubts or {})
        columns.append(ShownColumn(spec.key, heading, spec.meaning, texts, values, best))
    return columns


def _best_per_group(
    rows: Sequence[Mapping[str, Any]], values: Sequence[float | None], spec: Field, doubts: Doubts
) -> list[bool]:
    best = [False] * len(rows)
    for group in groups_of(rows):
        members = [i for i, row in enumerate(rows) if all(row.get(key) == value for key, value in group.items())]
        if doubts.get((spec.key, tuple(group.items()))):
            continue
        for i, flag in zip(members, best_of([values[i] for i in members], spec.better), strict=True):
            best[i] = flag
    return best


def aggregate_columns(
    rows: Sequence[Mapping[str, Any]], plus_minus: str = "±", doubts: Doubts | None = None
) -> list[ShownColumn]:
    """The columns of `aggregate`d rows, cells written `mean ± half-width`; best is taken per group."""
    columns: list[ShownColumn] = []
    for spec in FIELDS:
        cells = [row.get(spec.key) for row in rows]
        means = [cell.mean if isinstance(cell, Estimate) else number(cell) for cell in cells]
        if all(mean is None for mean in means):
            continue
        unit = common_unit(m for m in means if m is not None) if spec.kind == "time" else None
        best = _best_per_group(rows, means, spec, doubts or {})
        texts = [_with_interval(spec.kind, cell, unit, plus_minus) for cell in cells]
        heading = f"{spec.heading} ({unit.name})" if unit else spec.heading
        columns.append(ShownColumn(spec.key, heading, spec.meaning, texts, means, best))
    return columns


def varying(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of load, placement, cluster and seed tell the rows apart: columns beside the policy."""
    keys = ("load", "placement", "cluster", "varied", "seed")
    return [key for key in keys if len({repr(row.get(key)) for row in rows}) > 1]


def print_comparison(rows: Sequence[Mapping[str, Any]], console: Console, doubts: Doubts | None = None) -> None:
    """Print comparison rows; colour marks the best of each column, a `*` where there is no colour.

    A terminal too narrow for all columns gets several tables below each other; a pipe gets full width.
    """
    _print(rows, columns_of(rows, doubts), varying(rows), console, "")


def print_aggregates(rows: Sequence[Mapping[str, Any]], console: Console, doubts: Doubts | None = None) -> None:
    """Print `aggregate`d rows: means over seeds with 95 % confidence intervals."""
    keys = [key for key in varying(rows) if key != "seed"]
    plus_minus = "±" if _unicode(console) else "+/-"
    runs = max((int(row.get("runs", 1)) for row in rows), default=1)
    note = f"mean {plus_minus} 95 % confidence interval over {runs} seeds" if runs > 1 else ""
    _print(rows, aggregate_columns(rows, plus_minus, doubts), keys, console, note)


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """Print one run: what was run, then its metrics, times in human units with the seconds beside them."""
    from rich.markup import escape
    from rich.table import Table

    ascii_only = not _unicode(console)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(style="dim", no_wrap=True)

    def line(name: str, text: str, beside: str = "") -> None:
        grid.add_row(name, text.replace(ABSENT, "-") if ascii_only else text, beside)

    for spec in FIELDS:
        value = summary.get(spec.key)
        if spec.key == "lost_gpu_h" and value is None and number(summary.get("lost_gpu_s")) is not None:
            value = float(summary["lost_gpu_s"]) / 3600
        if spec.key not in summary and value is None:
            continue
        size = number(value)
        unit, texts = _texts(spec.kind, [size])
        beside = f"{size:,.1f} s" if spec.kind == "time" and size is not None and unit != "s" else ""
        line(spec.heading, f"{texts[0]} {unit}".strip(), beside)
    for key, name in (("events", "events"), ("decisions", "decisions")):
        if key in summary:
            line(name, count(summary[key]))
    if number(summary.get("wall_s")) is not None:
        memory = number(summary.get("peak_rss_mib"))
        line("simulated in", duration(summary["wall_s"]), "" if memory is None else f"{memory:,.0f} MiB")
    title = f"[bold]{escape(str(summary.get('policy', '')))}[/bold]"
    place = [str(summary[key]) for key in ("cluster", "placement") if summary.get(key)]
    jobs = f"{count(summary.get('finished'))} of {count(summary.get('jobs'))} jobs finished"
    console.print(" | ".join([title, *map(escape, place), jobs]), highlight=False, soft_wrap=True)
    show(grid, console)


def print_tenants(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print how a run went for each tenant; nothing where nobody shares."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("tenant", no_wrap=True)
    fields = (
        ("guaranteed", "guaranteed", "count"), ("finished", "finished", "count"), ("gpu_hours", "GPU-hours", "amount"),
        ("borrowed_gpu_hours", "borrowed", "amount"), ("reclaims", "reclaimed", "count"),
        ("avg_queue_s", "avg queue", "time"), ("avg_jct_s", "avg JCT", "time"),
    )  # fmt: skip
    columns = []
    for key, heading, kind in fields:
        unit, texts = _texts(kind, [number(row[key]) for row in rows])
        table.add_column(f"{heading} ({unit})" if unit else heading, justify="right", no_wrap=True)
        columns.append(texts)
    for row, *texts in zip(rows, *columns, strict=True):
        table.add_row(str(row["tenant"]) or ABSENT, *texts)
    if rows:
        console.print()
        show(table, console)


def _texts(kind: str, values: Sequence[float | None]) -> tuple[str, list[str]]:
    if kind == "time":
        return duration_column(values)
    return "", [ABSENT if value is None else _one(kind, value) for value in values]


def _one(kind: str, value: float) -> str:
    match kind:
        case "percent":
            return percent(value)
        case "count":
            return count(value) if value == int(value) else f"{value:,.1f}"
        case "ratio":
            return f"{value:,.2f}x"
        case "amount":
            return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
        case "time":
            return duration(value)
        case _:
            return f"{value:.3f}"


def _with_interval(kind: str, cell: object, unit: Unit | None, plus_minus: str) -> str:
    """One cell: the mean alone, or with its half-width, in the same unit and to the same decimals."""
    mean = cell.mean if isinstance(cell, Estimate) else number(cell)
    if mean is None:
        return ABSENT
    half = cell.half_width if isinstance(cell, Estimate) else None
    if kind == "time":
        chosen = unit or common_unit([mean])
        scale, suffix = (chosen.seconds, "" if unit else f" {chosen.name}") if chosen else (1.0, " s")
        if half is None:
            return f"{significant(mean / scale)}{suffix}"
        places = decimals_for(mean / scale)
        return f"{mean / scale:,.{places}f} {plus_minus} {half / scale:,.{places}f}{suffix}"
    if half is None:
        return _one(kind, mean)
    match kind:
        case "percent":
            return f"{100 * mean:.1f} {plus_minus} {100 * half:.1f} %"
        case "fraction":
            return f"{mean:.3f} {plus_minus} {half:.3f}"
        case _:
            return f"{mean:,.1f} {plus_minus} {half:,.1f}"


def _print(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[ShownColumn], keys: Sequence[str], console: Console, note: str
) -> None:
    """Print the columns in as few tables as the width allows, then the notes."""
    if not rows:
        console.print("no runs to compare")
        return
    plain = not console.is_terminal or console.no_color or console.color_system is None
    ascii_only = not _unicode(console)
    print_in_parts(columns, lambda some: _table(rows, some, keys, plain, ascii_only), console)
    if plain and any(any(column.best) for column in columns):
        note = f"* best of the column, where it can be told from the others{'; ' if note else ''}{note}"
    if note:
        console.print(note, style="dim", highlight=False, soft_wrap=True)


def _unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def _table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[ShownColumn],
    keys: Sequence[str],
    plain: bool,
    ascii_only: bool,
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shape = box.ASCII2 if ascii_only else box.SIMPLE_HEAD
    table = Table(box=shape, header_style="" if plain else "bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for key in keys:
        table.add_column(key, no_wrap=True)
    for column in columns:
        heading = column.heading if plain else column.heading.replace(" (", "\n(")
        table.add_column(heading, justify="right", no_wrap=True)
    for i, row in enumerate(rows):
        cells = [Text(str(row.get("policy", "")), style="" if plain else "bold")]
        cells += [Text("" if row.get(key) is None else str(row[key])) for key in keys]
        for column in columns:
            text = column.texts[i].replace(ABSENT, "-") if ascii_only else column.texts[i]
            if plain and column.best[i]:
                text = "*" + text
            cells.append(Text(text, style="bold green" if column.best[i] and not plain else ""))
        table.add_row(*cells)
    return table
