"""`cotenant generate`: write a generated workload as a job log."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cotenant.cli import options as opt


def generate(
    spec: Annotated[str, typer.Argument(help="Generator, e.g. philly-like:jobs=2000,seed=1,load=0.9,gpus=128.")],
    out: Annotated[str, typer.Option("--out", "-o", help="File to write (.csv, .gz, .parquet); '-' prints.")] = "-",
    cluster: Annotated[str, typer.Option(help="Cluster whose GPUs the load refers to.")] = "",
) -> None:
    """Write a workload drawn from published distributions of a real cluster."""
    from cotenant.core.errors import unknown
    from cotenant.workload.generators import GENERATORS
    from cotenant.workload.writer import write_csv

    name = spec.split(":", 1)[0]
    if name not in GENERATORS:
        raise unknown("generator", name, GENERATORS)
    opt.check_targets(out)
    gpus = opt.load_cluster(cluster).gpus if cluster else None
    work = opt.load_workload(spec, gpus)
    if out == "-":
        write_csv(work, sys.stdout)
        return
    opt.guarded_write(out, lambda: write_csv(work, out))
    typer.echo(f"{len(work)} jobs written to {out}")
