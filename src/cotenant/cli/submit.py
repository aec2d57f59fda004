"""`cotenant submit`: jobs from YAML files, or one from the command line."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote
from cotenant.cli.command import Command, command_of, environment, job_of
from cotenant.cli.job_files import read_job_files

__all__ = ["Command", "submit"]

_ANSWER_S = 10.0  # for which a decision about a deadline is waited for
_TOLD = 20  # elements of an array whose answers are shown


def submit(
    ctx: typer.Context,
    files: Annotated[list[str] | None, typer.Argument(help="YAML files, or -- COMMAND.", metavar="[FILE]...")] = None,
    gpus: Annotated[str, typer.Option(help="N or TYPE:N, at least 1.")] = "",
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
    model: Annotated[str, typer.Option(help="What it trains, as the service's profile of speeds names it.")] = "",
    tenant: Annotated[str, typer.Option(help="Whose job it is; users have one already.")] = "",
    cpus: Annotated[float | None, typer.Option(help="CPU cores.")] = None,
    mem: Annotated[str, typer.Option(help="Memory: GiB, or e.g. 512M, 16G.")] = "",
    gpu_mem: Annotated[str, typer.Option(help="Memory of each GPU that it needs and may use: GiB, or 512M.")] = "",
    priority: Annotated[int | None, typer.Option(help="Larger goes first; above 0 for admins, or as allowed.")] = None,
    array: Annotated[
        str,
        typer.Option(help="Many alike: 0-99, 1,3,5, or 0-99%5: five at a time. COTENANT_ARRAY_INDEX says which."),
    ] = "",
    after: Annotated[
        list[str] | None,
        typer.Option(help="Start after this job: ID or ok:ID (succeeded), any:ID, failed:ID; repeatable."),
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="K=V, or K to take it from here; repeatable.")] = None,
    max_runtime: Annotated[str, typer.Option(help="End it after e.g. 90s, 30m, 2h.")] = "",
    retries: Annotated[int | None, typer.Option(help="Try again so often when it fails.")] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="Tell https://HOST/PATH or NAME@HOST of its end; repeatable.")
    ] = None,
    workdir: Annotated[str, typer.Option(help="Where it runs; else here.")] = "",
    deadline: Annotated[
        str,
        typer.Option(
            help="When it should be done, from now: 4h, or 4h:10,8h:5 with what it is worth by then; answered at once."
        ),
    ] = "",
    expected: Annotated[str, typer.Option(help="How long it is thought to run, e.g. 2h.")] = "",
    image: Annotated[str, typer.Option(help="Container image to run it in, where apptainer or podman is.")] = "",
    json_: opt.Plain = False,
) -> None:
    """Submit jobs: files as they are, or `cotenant submit --gpus 1 -- python train.py`.

    Options given beside files change every job in them. Prints the ids, one per line.
    """
    from cotenant.client.codec import mapping
    from cotenant.core.errors import InputError
    from cotenant.core.jobspec import parse_job

    given: dict[str, Any] = {
        "gpus": gpus, "name": name, "tenant": tenant, "cpus": cpus, "mem": mem, "gpu_mem": gpu_mem, "model": model,
        "after": [part for item in after or [] for part in item.split(",") if part], "max_runtime": max_runtime,
        "priority": priority, "array": array, "retries": retries, "workdir": workdir, "deadline": deadline,
        "expected": expected, "image": image, "notify": notify or [],
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value not in ("", None, [])}
    extra = environment(env or [])
    command: list[str] = command_of(ctx)
    if bool(files) == bool(command):
        raise InputError("give YAML files, or a command after '--': cotenant submit --gpus 1 -- python train.py")
    jobs: list[tuple[str, Any]] = [("job", job_of(command))] if command else read_job_files(files or [])
    specs = [mapping(parse_job(_filled(job, given, extra), where)) for where, job in jobs]
    with remote.connected() as client:
        ids = client.submit(specs)
        timed = [one for group, spec in zip(ids, specs, strict=True) if spec.get("deadline") for one in group[:_TOLD]]
        told = [client.deadline(one, wait_s=_ANSWER_S) for one in timed]
    if json_:
        remote.print_json({"ids": ids, "deadlines": told} if told else {"ids": ids})
        return
    for line in told:
        typer.echo(f"{line['job']}: deadline {line['verdict']}: {line['text']}", err=True)
    for group in ids:
        for id_ in group:
            typer.echo(id_)


def _filled(job: Any, given: dict[str, Any], extra: dict[str, str]) -> Any:
    """A job with what was said beside it, and with paths that mean the same to the service. What is no job stays."""
    if not isinstance(job, dict):
        return job
    job = {**job, **given}
    if extra and isinstance(job.get("env", {}), dict):
        job["env"] = {**job.get("env", {}), **extra}
    job["workdir"] = _absolute(job.get("workdir") or ".")
    saved = job.get("checkpoint")
    if isinstance(saved, dict) and saved.get("dir"):
        job["checkpoint"] = {**saved, "dir": _absolute(saved["dir"])}
    return job


def _absolute(path: object) -> str:
    return os.path.abspath(os.path.expanduser(str(path)))
