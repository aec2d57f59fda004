"""`cotenant logs`: what a job has printed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cotenant.cli import remote


def logs(
    job: remote.Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Its standard error instead.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="Of this attempt; 0 is the newest.")] = 0,
) -> None:
    """Print the output of a job. Ctrl-C stops the printing, not the job."""
    stream = "stderr" if stderr else "stdout"
    with remote.detaching(f"job {job} goes on"), remote.connected() as client:
        for text in client.logs(job, follow=follow, stream=stream, attempt=attempt):
            sys.stdout.write(text)
            sys.stdout.flush()
