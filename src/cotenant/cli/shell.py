"""`cotenant shell`: an interactive job."""

from __future__ import annotations

import typer

from cotenant.cli import command as job_options
from cotenant.cli import remote, terminal
from cotenant.cli.attach import join
from cotenant.cli.command import Command

__all__ = ["Command", "shell"]


def shell(
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
) -> None:
    """A terminal with GPUs: a shell, or the command after `--`, as a job. It ends with `exit`, or like any job.

    Ctrl-C while it waits cancels it; later it goes to the shell. Ctrl-P Ctrl-Q leaves it running: `cotenant attach`.
    """
    words = job_options.command_of(ctx)
    job = job_options.job_of(words) if words else {"run": 'exec "${SHELL:-bash}"', "name": "shell"}
    job |= {"tty": True, "env": {"TERM": terminal.terminal_name()}}
    made = job_options.one_job(
        job, env, workdir, gpus=gpus, name=name, tenant=tenant, cpus=cpus, mem=mem, gpu_mem=gpu_mem,
        priority=priority, max_runtime=max_runtime,
    )  # fmt: skip
    with remote.connected() as client:
        ((id_,),) = client.submit([made])
        terminal.say(f"job {id_}")
        try:
            info = join(client, id_)
        except KeyboardInterrupt:
            client.cancel(id_)
            terminal.say(f"job {id_} is cancelled")
            raise typer.Exit(130) from None
    raise typer.Exit(terminal.exit_code(info))
