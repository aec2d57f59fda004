"""`cotenant profile`: measure how a command's speed depends on cores."""

from __future__ import annotations

from typing import Annotated

import typer


def profile(
    command: Annotated[list[str], typer.Argument(help="The command, after `--`; it must use cotenant.runtime.")],
    name: Annotated[str, typer.Option(help="Name of the jobs (or models) that the curve is for.")],
    out: Annotated[str, typer.Option(help="File of curves to add to; made if it does not exist.")] = "curves.json",
    most: Annotated[float, typer.Option(help="Most cores to try; 0 for all of this machine.")] = 0.0,
    least: Annotated[float, typer.Option(help="Fewest cores to try; below 1 needs a CPU quota.")] = 0.5,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds to count steps at each point.")] = 3.0,
) -> None:
    """Find a job's speed by cores from a few short runs (optimistic profiling), for --allocator and --profile."""
    import tempfile
    from pathlib import Path

    from cotenant.backends import open_backend
    from cotenant.cli import options as opt
    from cotenant.profiler import profile_cores
    from cotenant.workload.profiles.curves import save_curve

    opt.check_targets(out)
    with tempfile.TemporaryDirectory(prefix="cotenant-profile-") as folder:
        backend = open_backend("local", Path(folder), gpus=0)
        try:
            cores = most or float(sum(node.cpus for node in backend.nodes()) or 1)
            found = profile_cores(
                backend, command, most=cores, least=min(least, cores), seconds=seconds,
                told=lambda at, rate: typer.echo(f"{at:6.2f} cores {rate:10.2f} steps/s"),
            )  # fmt: skip
        finally:
            backend.close()
    opt.guarded_write(out, lambda: save_curve(Path(out), name, found.curve))
    typer.echo(f"{found.measurements} measurements in {found.seconds:.0f} s; curve '{name}' is in {out}")
