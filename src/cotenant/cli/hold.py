"""`cotenant hold`: holds jobs back."""

from __future__ import annotations

import typer

from cotenant.cli import live
from cotenant.cli import options as opt


def hold(jobs: live.Jobs, json_: opt.Plain = False) -> None:
    """Keep jobs from starting; running ones are preempted and then held."""
    with live.connected() as client:
        done = [client.hold(job) for job in jobs]
    if json_:
        live.print_json(done)
        return
    for job in done:
        typer.echo(f"{job.id}: {job.state}" + (f" ({live.clean(job.reason)})" if job.reason else ""))
