"""`cotenant cancel`: cancels jobs."""

from __future__ import annotations

import typer

from cotenant.cli import live
from cotenant.cli import options as opt


def cancel(jobs: live.Jobs, json_: opt.Plain = False) -> None:
    """Ask jobs to end for good."""
    with live.connected() as client:
        done = [client.cancel(job) for job in jobs]
    if json_:
        live.print_json(done)
        return
    for job in done:
        typer.echo(f"{job.id}: {job.state}" + (f" ({live.clean(job.reason)})" if job.reason else ""))
