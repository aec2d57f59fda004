"""`cotenant exec`: a command beside a running job."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import command as job_options
from cotenant.cli import remote, terminal
from cotenant.cli.command import Command

__all__ = ["Command", "exec"]


def exec(
    ctx: typer.Context,
    job: remote.Job,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="With a terminal, for shells and editors.")] = False,
    env: job_options.Env = None,
) -> None:
    """Run a command where and as a running job runs: `cotenant exec 7 -- nvidia-smi`, `cotenant exec -t 7 -- bash`.

    It has the job's environment, user, limits and GPUs, and ends with it at the latest. The exit code is the command's.
    """
    from cotenant.core.errors import InputError

    words = job_options.command_of(ctx)
    if not words:
        raise InputError(f"give a command after '--': cotenant exec {job} -- nvidia-smi")
    given: dict[str, Any] = job_options.environment(env or [])
    if tty:
        given = {"TERM": terminal.terminal_name(), **given}
    with remote.connected() as client:
        channel = client.open_channel(job, "exec", argv=words, env=given, tty=tty)
        try:
            terminal.talk(channel, tty)
        except terminal.Left:
            raise typer.Exit(130) from None
    if channel.exit_code is None:
        terminal.say(f"job {job} ended, and the command with it")
    raise typer.Exit(1 if channel.exit_code is None else channel.exit_code)
