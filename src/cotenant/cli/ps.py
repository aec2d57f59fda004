"""`cotenant ps`: jobs, their states, why they wait and when they should be done."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def ps(
    jobs: remote.SomeJobs = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Finished ones too.")] = False,
    state: remote.States = "",
    user: remote.Users = None,
    name: remote.Names = None,
    tenant: remote.Tenants = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many; those that run come first.")] = 1000,
    json_: opt.Plain = False,
) -> None:
    """List jobs that have not finished, or those named, with the reason of each and its expected finish."""
    which = remote.which(jobs, state, name, user, tenant)
    states = () if all_ or jobs or which.states else remote.UNFINISHED
    with remote.connected() as client:
        found = client.jobs(which, states=states, limit=limit)
    if json_:
        remote.print_json(found)
    elif found:
        remote.print_table(remote.job_table(found))
    else:
        typer.echo("no jobs" if not states else "no unfinished jobs (--all shows finished ones)", err=True)
    if found.left_out:
        typer.echo(f"{found.left_out} more are not shown: --limit shows up to 10,000, filters show fewer", err=True)
