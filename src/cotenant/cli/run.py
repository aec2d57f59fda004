"""`cotenant run`: a job as if it ran here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import command as job_options
from cotenant.cli import remote, terminal
from cotenant.cli.command import Command

if TYPE_CHECKING:
    from cotenant.client import Client

__all__ = ["Command", "run"]

_CHOICES = ("ask", "detach", "cancel")


def run(
    ctx: typer.Context,
    gpus: job_options.Gpus = "",
    name: job_options.Name = "",
    tenant: job_options.Tenant = "",
    cpus: job_options.Cpus = None,
    mem: job_options.Mem = "",
    gpu_mem: job_options.GpuMem = "",
    priority: job_options.Priority = None,
    env: job_options.Env = None,
    max_runtime: job_options.MaxRuntime = "",
    workdir: job_options.Workdir = "",
    on_interrupt: Annotated[
        str, typer.Option(help="What Ctrl-C does: ask (without a terminal: detach), detach or cancel.")
    ] = "ask",
) -> None:
    """Submit a job, show its output, and end as it ends: `cotenant run --gpus 1 -- python train.py`.

    The exit code is the job's: 128 and the number of a signal that ended it, 130 if it was cancelled.
    """
    from cotenant.core.errors import InputError, unknown

    if on_interrupt not in _CHOICES:
        raise unknown("--on-interrupt", on_interrupt, _CHOICES)
    words = job_options.command_of(ctx)
    if not words:
        raise InputError("give a command after '--': cotenant run --gpus 1 -- python train.py")
    job = job_options.one_job(
        job_options.job_of(words), env, workdir, gpus=gpus, name=name, tenant=tenant, cpus=cpus, mem=mem,
        gpu_mem=gpu_mem, priority=priority, max_runtime=max_runtime,
    )  # fmt: skip
    with remote.connected() as client:
        ((id_,),) = client.submit([job])
        terminal.say(f"job {id_}")
        try:
            terminal.show_output(client, id_)
        except KeyboardInterrupt:
            _interrupted(client, id_, on_interrupt)
        client.wait([id_])
        info = client.job(id_)
    raise typer.Exit(terminal.exit_code(info))


def _interrupted(client: Client, job: str, choice: str) -> None:
    """Leave, or cancel the job and go on to its end."""
    from cotenant.service.facade import Conflict

    try:
        if choice == "ask" and sys.stdin.isatty():
            choice = "cancel" if typer.confirm(f"\nCancel job {job}?", err=True) else "detach"
    except (KeyboardInterrupt, typer.Abort):
        choice = "detach"
    if choice != "cancel":
        terminal.say(f"detached: job {job} goes on; see cotenant attach {job}")
        raise typer.Exit(130)
    try:
        client.cancel(job)
    except Conflict:
        return  # it has ended by itself
    terminal.say(f"job {job} is cancelled")
