"""`cotenant events`: what happened, to one job or to all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

if TYPE_CHECKING:
    from cotenant.service.facade import EventInfo


def events(
    job: Annotated[
        str, typer.Argument(help="Only of this job.", metavar="[JOB]", autocompletion=remote.complete_jobs)
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen, until Ctrl-C.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest; not with -f.")] = 1000,
    json_: opt.Plain = False,
) -> None:
    """Print the history. With -f and --json: one JSON object per line."""
    with remote.detaching("the service goes on", code=0), remote.connected() as client:
        if follow:
            for item in client.follow_events(job, after):
                typer.echo(json.dumps(remote.plain(item)) if json_ else _line(item))
            return
        found = client.events(job, after, limit, newest=True)
    if json_:
        remote.print_json(found)
        return
    for item in found:
        typer.echo(_line(item))


def _line(item: EventInfo) -> str:
    data = " ".join(f"{key}={value}" for key, value in item.data.items() if key != "spec")
    parts = (f"{item.seq:>6}", remote.clock(item.time_s), item.job or "-", item.kind, data)
    return remote.clean("  ".join(part for part in parts if part))
