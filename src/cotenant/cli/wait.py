"""`cotenant wait`: until jobs have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def wait(
    jobs: remote.Jobs,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up after so many seconds (exit code 124).")] = None,
    json_: opt.Plain = False,
) -> None:
    """Wait until jobs have ended, arrays as a whole.

    Exit code 0 if all succeeded, 1 if not. Ctrl-C stops the waiting, not the jobs.
    """
    from cotenant.core.lifecycle import FINAL, JobState

    with remote.detaching(f"{', '.join(jobs)} go on"), remote.connected() as client:
        found = client.wait(jobs, timeout)
    if json_:
        remote.print_json(found)
    else:
        for info in found:
            typer.echo(remote.state_of(info))
    if any(info.state not in FINAL for info in found):
        raise typer.Exit(124)
    if any(info.state is not JobState.SUCCEEDED for info in found):
        raise typer.Exit(1)
