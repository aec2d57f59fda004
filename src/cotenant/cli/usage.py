"""`cotenant usage`: who has used what, as with Slurm's `sreport`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

_WHEN = "2h ago, or a time: 2026-11-16 or 2026-11-16T12:00"


def usage(
    by: Annotated[str, typer.Option(help="Lines by tenant, user, day, model, state; several with commas.")] = "tenant",
    from_: Annotated[str, typer.Option("--from", help=f"Begin: {_WHEN}; without: all that is known.")] = "",
    to: Annotated[str, typer.Option("--to", help=f"End: {_WHEN}; without: now.")] = "",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json_: opt.Plain = False,
) -> None:
    """Show GPU-hours, jobs, waits, failures and lost work between two moments, also of jobs long forgotten."""
    if csv and json_:
        raise typer.BadParameter("Give --csv or --json, not both.")
    from_s, to_s = (remote.moment(text, name) if text else None for text, name in ((from_, "--from"), (to, "--to")))
    with remote.connected() as client:
        found = client.usage([name.strip() for name in by.split(",")], from_s, to_s)
    if json_:
        remote.print_json(found)
    elif csv:
        _print_csv(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    by = found["by"]
    total = dict.fromkeys(by, "") | {by[0]: "total"} | found["total"] if by else found["total"]
    rows = [_cells(row, by) for row in (*found["rows"], total)]
    heads = ("GPU-hours", "jobs", "started", "wait", "wait p95", "failures", "preemptions", "lost GPU-hours")
    remote.print_table(remote.table((*by, *heads), rows, right=heads))


def _cells(row: dict[str, Any], by: list[str]) -> tuple[object, ...]:
    counts = f"{row['gpu_hours']:.2f}", row["jobs"], row["started"]
    waits = remote.span(row["wait_mean_s"]), remote.span(row["wait_p95_s"])
    return (
        *(row[name] or "-" for name in by), *counts, *waits, row["failures"],
        row["preemptions"], f"{row['lost_gpu_hours']:.2f}",
    )  # fmt: skip


def _print_csv(found: dict[str, Any]) -> None:
    """The lines of the report without the total, as spreadsheets read them."""
    import csv
    import sys

    columns = [*found["by"], *found["total"]]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in found["rows"]:
        writer.writerow({name: _harmless(value) for name, value in row.items()})


def _harmless(value: object) -> object:
    """A text from others that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
