"""`cotenant hold`: holds jobs back."""

from __future__ import annotations

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def hold(jobs: remote.Jobs, json_: opt.Plain = False) -> None:
    """Keep jobs from starting; running ones are preempted and then held."""
    with remote.connected() as client:
        done = [client.hold(job) for job in jobs]
    if json_:
        remote.print_json(done)
        return
    for job in done:
        typer.echo(f"{job.id}: {job.state}" + (f" ({remote.clean(job.reason)})" if job.reason else ""))
