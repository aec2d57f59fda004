"""`cotenant ps`: jobs, their states, why they wait and when they should be done."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def ps(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Finished ones too.")] = False,
    state: Annotated[str, typer.Option(help="Only these states, separated by commas.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")] = 1000,
    json_: opt.Plain = False,
) -> None:
    """List jobs that have not finished, with the reason of each and its expected finish."""
    from cotenant.core.errors import unknown
    from cotenant.core.lifecycle import JobState

    states = [part.strip() for part in state.split(",") if part.strip()]
    for name in states:
        if name not in list(JobState):
            raise unknown("state", name, [item.value for item in JobState])
    with remote.connected() as client:
        jobs = client.jobs(states=states or (() if all_ else remote.UNFINISHED), limit=limit)
    if json_:
        remote.print_json(jobs)
    elif jobs:
        remote.print_table(remote.job_table(jobs))
    else:
        typer.echo("no jobs" if all_ or states else "no unfinished jobs (--all shows finished ones)", err=True)
