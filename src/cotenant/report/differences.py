"""Paired differences as a table on the terminal and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cotenant.report.paired import GROUP, Difference
from cotenant.report.wide import print_in_parts

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = {
    "avg_jct_s": "avg JCT", "p95_jct_s": "p95 JCT", "p99_jct_s": "p99 JCT", "avg_queue_s": "avg queue",
    "makespan_s": "makespan",
}  # fmt: skip


def metrics_of(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics in which anything differs."""
    return [m for m in HEADINGS if any(isinstance(line.get(m), Difference) and line[m].mean for line in lines)]


def text_of(difference: Difference | None) -> str:
    """`-4.8 % [-9.1, -0.6]`; without an interval the percentage alone."""
    if difference is None or difference.change is None:
        return "-"
    share = 100 * difference.change
    if difference.change_ends is None:
        return f"{share:+.1f} %"
    low, high = (100 * end for end in difference.change_ends)
    return f"{share:+.1f} % [{low:+.1f}, {high:+.1f}]" + ("" if difference.clear else " ?")


def note_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """How the intervals were made."""
    methods = dict.fromkeys(
        d.method
        for line in lines
        for m in HEADINGS
        if isinstance(d := line.get(m), Difference) and d.half_width is not None
    )
    if not methods:
        return "one run each and no interval: give --seeds where something is random"
    shown = "; ".join(list(methods)[:2])
    return f"95 % intervals by {shown}; '?' where the interval holds 0, so that the two cannot be told apart"


def print_differences(lines: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print how policies differ from the baseline; nothing where there is nobody to compare."""
    metrics = metrics_of(lines)
    if not lines or not metrics:
        return
    from rich.table import Table

    keys = [key for key in GROUP if len({repr(line.get(key)) for line in lines}) > 1]

    def table_of(some: Sequence[str]) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(f"against {lines[0]['baseline']}", no_wrap=True)
        for name in (*keys, *(HEADINGS[m] for m in some)):
            table.add_column(name, no_wrap=True, justify="left" if name in keys else "right")
        for line in lines:
            table.add_row(str(line["policy"]), *(str(line.get(key)) for key in keys), *(text_of(line[m]) for m in some))
        return table

    console.print()
    print_in_parts(metrics, table_of, console)
    console.print(note_of(lines), style="dim", highlight=False, soft_wrap=True)


def as_data(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same for JSON and data frames: one row per policy and metric."""
    return [
        {
            **{key: line[key] for key in ("policy", "baseline", *GROUP) if key in line}, "metric": m,
            "difference": d.mean, "low": d.low if d.half_width is not None else None,
            "high": d.high if d.half_width is not None else None, "baseline_value": d.baseline,
            "change": d.change, "change_half": d.change_half, "n": d.n,
            "change_low": d.change_ends[0] if d.change_ends else None,
            "change_high": d.change_ends[1] if d.change_ends else None,
            "method": d.method if d.half_width is not None else "",
        }
        for line in lines for m in HEADINGS if isinstance(d := line.get(m), Difference)
    ]  # fmt: skip
