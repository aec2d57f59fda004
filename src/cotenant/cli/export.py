"""`cotenant export`: the jobs that a service has run, as a log to simulate with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cotenant.cli import options as opt


def export(
    out: Annotated[
        str, typer.Option("--out", "-o", help="File to write: .csv, .csv.gz or .parquet; '-' prints CSV.")
    ] = "-",
    home: Annotated[
        str,
        typer.Option(help="Home of the service, or a file of `cotenant backup`; else COTENANT_HOME or ~/.cotenant."),
    ] = "",
) -> None:
    """Write the ended jobs of the service's journal as a job log; a service that runs is not disturbed."""
    from cotenant.client.home import home as default_home
    from cotenant.service.history import history
    from cotenant.workload.writer import write_csv

    opt.check_targets(out)
    work = history(Path(home).expanduser() if home else default_home())
    opt.tell(work.notes)
    if out == "-":
        write_csv(work, sys.stdout, seen=True)
        return
    opt.guarded_write(out, lambda: write_csv(work, out, seen=True))
    typer.echo(f"{len(work)} jobs written to {out}")
