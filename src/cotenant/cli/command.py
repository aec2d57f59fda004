"""One job from the command line: what follows `--`, and the options that say on what it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Gpus = Annotated[str, typer.Option(help="N or TYPE:N.")]
Name = Annotated[str, typer.Option(help="A name for people.")]
Tenant = Annotated[str, typer.Option(help="Whose job it is; users have one already.")]
Cpus = Annotated[float | None, typer.Option(help="CPU cores.")]
Mem = Annotated[str, typer.Option(help="Memory: GiB, or e.g. 512M, 16G.")]
GpuMem = Annotated[str, typer.Option(help="Memory of each GPU that it needs and may use: GiB, or 512M.")]
Priority = Annotated[int | None, typer.Option(help="Larger goes first, in policies that look at it.")]
Env = Annotated[list[str] | None, typer.Option(help="K=V, or K to take it from here; repeatable.")]
MaxRuntime = Annotated[str, typer.Option(help="End it after e.g. 90s, 30m, 2h.")]
Workdir = Annotated[str, typer.Option(help="Where it runs; else here.")]

_COMMAND = "cotenant.command"


class Command(TyperCommand):
    """Keeps what follows `--` apart, so that files and a command cannot be confused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Cut the arguments at `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def command_of(ctx: typer.Context) -> list[str]:
    """What stood after `--`."""
    found: list[str] = ctx.meta.get(_COMMAND, [])
    return found


def one_job(job: dict[str, Any], env: list[str] | None, workdir: str, **given: Any) -> dict[str, Any]:
    """A job as it is sent, checked: with whichever options were given, in this folder unless another is named."""
    from cotenant.client.codec import mapping
    from cotenant.core.jobspec import parse_job

    job = {**job, **{key: value for key, value in given.items() if value not in ("", None)}}
    job["env"] = {**job.get("env", {}), **environment(env or [])}
    job["workdir"] = os.path.abspath(os.path.expanduser(workdir or "."))
    return mapping(parse_job(job))


def environment(entries: list[str]) -> dict[str, str]:
    """Variables as `--env` gives them."""
    from cotenant.core.errors import InputError

    found: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            if key not in os.environ:
                raise InputError(f"--env {key}: there is no such variable here; write {key}=VALUE")
            value = os.environ[key]
        found[key] = value
    return found


def job_of(command: list[str]) -> dict[str, Any]:
    """A job of these words, named after the program."""
    import shlex

    name = Path(next((word for word in command if word.endswith((".py", ".sh"))), command[0])).stem
    label = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)[:63]
    text = command[0] if _is_shell_text(command) else shlex.join(command)
    return {"run": text, "name": label if label[:1].isalnum() else "job"}


def _is_shell_text(command: list[str]) -> bool:
    """Whether one quoted word is a whole line for the shell, such as 'echo $X', and not the name of a program."""
    import shutil

    return len(command) == 1 and len(command[0].split()) > 1 and shutil.which(command[0]) is None
