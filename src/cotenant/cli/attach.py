"""`cotenant attach`: back to a job that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cotenant.cli import remote, terminal

if TYPE_CHECKING:
    from cotenant.client import Client
    from cotenant.service.facade import JobInfo

_TAIL = 10


def attach(job: remote.Job) -> None:
    """Join the terminal of a job that has one, else show its output from the last lines on, until it ends.

    The exit code is the job's. Ctrl-C stops the showing, not the job; Ctrl-P Ctrl-Q leaves a terminal.
    """
    with remote.detaching(f"job {job} goes on"), remote.connected() as client:
        if client.job(job).spec.get("tty"):
            info = join(client, job)
        else:
            terminal.show_output(client, job, _TAIL)
            client.wait([job])
            info = client.job(job)
    raise typer.Exit(terminal.exit_code(info))


def join(client: Client, job: str) -> JobInfo:
    """The terminal of a job, in each attempt once it runs, until it has ended."""
    from cotenant.core.errors import CotenantError
    from cotenant.core.lifecycle import FINAL
    from cotenant.service.facade import Conflict

    shown = 0
    while (info := _begun(client, job, shown)).state not in FINAL:
        try:
            terminal.talk(client.open_channel(job, "attach"), tty=True)
        except terminal.Left:
            terminal.say(f"detached: job {job} goes on; see cotenant attach {job}")
            raise typer.Exit(0) from None
        except Conflict:
            if client.job(job) == info:
                raise
        except CotenantError as error:
            raise CotenantError(f"{error}; job {job} may go on: cotenant attach {job}") from None
        shown = len(info.attempts)
    return info


def _begun(client: Client, job: str, shown: int) -> JobInfo:
    """Wait until a job runs in another attempt than those that were shown, or has ended; and say why it waits."""
    from cotenant.core.lifecycle import FINAL

    said, last = "", 0
    while True:
        found = client.events(job, last, 10_000, wait_s=5.0 if last else 0.0)
        last = found[-1].seq if found else last
        info = client.job(job)
        if info.state in FINAL or (info.state == "running" and len(info.attempts) > shown):
            return info
        if info.reason != said and info.state != "running":
            said = info.reason
            terminal.say(f"job {job} is {info.state}: {remote.clean(said)}")
