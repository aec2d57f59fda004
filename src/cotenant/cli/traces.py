"""`cotenant traces`: what a log contains and its flaws, and logs of any format as our own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt

app = typer.Typer(help="Look at job logs.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _traces() -> None:
    """Look at job logs."""


@app.command()
def describe(
    trace: opt.Trace,
    cluster: Annotated[str, typer.Option(help="Cluster for the offered load.")] = "",
    format_: opt.Format = "",
    profile: Annotated[str, typer.Option(help="Throughputs, for logs that count steps (Gavel).")] = "",
    json_: opt.Plain = False,
) -> None:
    """Print jobs, span, GPU-hours, sizes, durations, offered load and flaws of a log."""
    from cotenant.workload.describe import describe as describe_workload

    gpus = opt.load_cluster(cluster).gpus if cluster else None
    work = opt.load_workload(trace, gpus, format_=format_, profile=profile, quiet=True)
    facts = describe_workload(work, gpus)
    if json_:
        opt.write_json(facts, "-")
        return
    _print(facts)


@app.command()
def convert(
    trace: opt.Trace,
    out: Annotated[str, typer.Option("--out", "-o", help="File to write: .csv, .csv.gz or .parquet; '-' prints CSV.")],
    format_: opt.Format = "",
    profile: Annotated[str, typer.Option(help="Throughputs, for logs that count steps (Gavel).")] = "",
    from_: opt.From = "",
    to: opt.To = "",
    where: opt.Where = "",
) -> None:
    """Write a log of any known format, or a part of it, as Cotenant's own CSV or as parquet."""
    import sys

    from cotenant.core.errors import InputError
    from cotenant.workload.selecting import select
    from cotenant.workload.writer import write_csv

    opt.check_targets(out)
    if out != "-" and not out.endswith((".csv", ".csv.gz", ".gz", ".parquet")):
        raise InputError(f"--out {out}: the name must end in .csv, .csv.gz or .parquet")
    work = select(opt.load_workload(trace, None, format_=format_, profile=profile), where, from_, to)
    if out == "-":
        write_csv(work, sys.stdout, seen=True)
        return
    opt.guarded_write(out, lambda: write_csv(work, out, seen=True))
    typer.echo(f"{len(work)} jobs written to {out}")


def _print(facts: dict[str, Any], indent: str = "") -> None:
    width = max((len(str(key)) for key in facts), default=0)
    for key, value in facts.items():
        if isinstance(value, dict):
            typer.echo(f"{indent}{key}")
            _print(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            typer.echo(f"{indent}{key}")
            _print_rows(value, indent + "  ")
        elif isinstance(value, list):
            typer.echo(f"{indent}{key}" + ("" if value else ": none"))
            for item in value:
                typer.echo(f"{indent}  - {item}")
        else:
            typer.echo(f"{indent}{key!s:<{width}}  {_number(value)}")


def _print_rows(rows: list[dict[str, Any]], indent: str) -> None:
    """Equal dicts as a table."""
    heads = [str(key) for key in rows[0]]
    lines = [heads, *([_number(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    for line in lines:
        typer.echo(indent + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
