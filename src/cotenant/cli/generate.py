"""`cotenant generate`: write a generated workload as a job log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options as opt

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.core.workload import Workload


def generate(
    spec: Annotated[str, typer.Argument(help="Generator, e.g. philly-like:jobs=2000,seed=1,load=0.9,gpus=128.")],
    out: Annotated[str, typer.Option("--out", "-o", help="File to write (.csv, .gz, .parquet); '-' prints.")] = "-",
    cluster: Annotated[str, typer.Option(help="Cluster whose GPUs the load refers to.")] = "",
    cluster_out: Annotated[str, typer.Option(help="Also write a cluster (.yaml) whose tenants fit the jobs.")] = "",
    departments: Annotated[int, typer.Option(min=0, help="Of --cluster-out: put tenants under so many.")] = 0,
) -> None:
    """Write a workload drawn from published distributions of a real cluster."""
    from cotenant.core.errors import unknown
    from cotenant.workload.generators import GENERATORS
    from cotenant.workload.writer import write_csv

    name = spec.split(":", 1)[0]
    if name not in GENERATORS:
        raise unknown("generator", name, GENERATORS)
    opt.check_targets(out, cluster_out)
    given = opt.load_cluster(cluster) if cluster else None
    work = opt.load_workload(spec, given.gpus if given else None)
    if cluster_out:
        _write_cluster(cluster_out, spec, work, given, departments)
    if out == "-":
        write_csv(work, sys.stdout)
        return
    opt.guarded_write(out, lambda: write_csv(work, out))
    typer.echo(f"{len(work)} jobs written to {out}")


def _write_cluster(target: str, spec: str, work: Workload, given: Cluster | None, departments: int) -> None:
    from cotenant.core.errors import InputError
    from cotenant.core.spec import Spec
    from cotenant.workload.cluster_file import cluster_text
    from cotenant.workload.generators.fitting_cluster import fitting_cluster

    if not target.lower().endswith((".yaml", ".yml")):
        raise InputError(f"--cluster-out {target}: a cluster file ends in .yaml")
    gpus = int(Spec.parse(spec).params.get("gpus", "0"))
    opt.write_text(target, cluster_text(fitting_cluster(work, given, gpus, departments)))
