"""`cotenant shutdown`: end the service, with its jobs or without."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

_LONGEST_S = 600.0


def shutdown(
    jobs: Annotated[
        str, typer.Option(help="keep: jobs run on. stop: they save, leave and wait for the next `serve`.")
    ] = "keep",
    wait: Annotated[bool, typer.Option(help="Return only when it has ended.")] = True,
    json_: opt.Plain = False,
) -> None:
    """End the service (admin). What waits, and what is running, is in the journal: the next `serve` goes on with it."""
    from cotenant.core.errors import unknown
    from cotenant.service.facade import Unavailable

    if jobs not in ("keep", "stop"):
        raise unknown("--jobs", jobs, ("keep", "stop"))
    with remote.connected() as client:
        client.shut_down(jobs)
        give_up = time.monotonic() + _LONGEST_S
        while wait and client.answers():
            if time.monotonic() > give_up:
                raise Unavailable(f"it still runs after {_LONGEST_S:g} s: see `cotenant ps` for who does not leave")
            time.sleep(0.1)
    done = "ended" if wait else "ending"
    remote.print_json({"service": done, "jobs": jobs}) if json_ else typer.echo(f"the service has {done}, jobs: {jobs}")
