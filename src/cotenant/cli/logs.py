"""`cotenant logs`: what a job has printed."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import remote


def logs(
    job: remote.Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    merged: Annotated[bool, typer.Option("--merged", help="Output and errors as they came; the default.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Its standard output only.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Its standard error only.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="Of this attempt; 0 is the newest.")] = 0,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Begin with the last so many lines.")] = None,
    since: Annotated[str, typer.Option(help="Begin with what came then: 90s, 2h (ago), or 2026-11-16T12:00.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="When each line came, in UTC.")] = False,
) -> None:
    """Print the output of a job, byte for byte. Ctrl-C stops the printing, not the job."""
    from cotenant.core.errors import InputError

    if merged + stdout + stderr > 1:
        raise InputError("give one of --merged, --stdout and --stderr")
    with remote.detaching(f"job {job} goes on"), remote.connected() as client:
        output = client.output(
            job, follow=follow, stream="stdout" if stdout else "stderr" if stderr else "merged", attempt=attempt,
            tail=tail, since_s=remote.moment(since) if since else None, timestamps=timestamps, on_gap=remote.tell_gap,
        )  # fmt: skip
        for data in output:
            remote.write(data)
