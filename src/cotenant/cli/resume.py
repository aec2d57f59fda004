"""`cotenant resume`: lets held jobs go on."""

from __future__ import annotations

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def resume(jobs: remote.Jobs, json_: opt.Plain = False) -> None:
    """Let held jobs go on."""
    with remote.connected() as client:
        done = [client.resume(job) for job in jobs]
    if json_:
        remote.print_json(done)
        return
    for job in done:
        typer.echo(f"{job.id}: {job.state}" + (f" ({remote.clean(job.reason)})" if job.reason else ""))
