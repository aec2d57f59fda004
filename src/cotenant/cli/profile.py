"""`cotenant profile`: measure commands, alone and in pairs, into a profile file for the simulator and the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli.command import Command, command_of

if TYPE_CHECKING:
    from cotenant.backends.base import Backend
    from cotenant.profiler import MixReport, ProfiledCommand
    from cotenant.workload.profiles.profile_file import ProfileFile

__all__ = ["Command", "profile"]

_ALL = "suspend,restart,batches,cores"


def profile(
    ctx: typer.Context,
    jobs: Annotated[list[str] | None, typer.Option(help="Job file, as for `submit`, with a model each.")] = None,
    name: Annotated[str, typer.Option(help="Name of the model (or jobs) it is; else that of the script.")] = "",
    out: Annotated[str, typer.Option(help="Profile file to add to; made if it does not exist.")] = "profile.json",
    budget: Annotated[float, typer.Option(min=1.0, help="Seconds for each command alone.")] = 180.0,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the command; virtual ones where there are no others.")] = 1,
    pairs: Annotated[bool, typer.Option("--pairs", help="Measure it beside the others of the file, too.")] = False,
    beside: Annotated[str, typer.Option(help="Pairs with these models only: A,B.")] = "",
    share: Annotated[str, typer.Option(help="How pairs share a GPU: time, mps, or time,mps.")] = "time",
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds to count steps of each pair.")] = 2.0,
    twins: Annotated[bool, typer.Option(help="Pairs of a command with itself, too.")] = True,
    measure: Annotated[str, typer.Option(help="What else to measure of each, as far as the budget goes.")] = _ALL,
    batches: Annotated[str, typer.Option(help="Batch sizes of the curve: 8,16; else its half and quarter.")] = "",
    cut: Annotated[bool, typer.Option(help="The batch may be cut into sub-batches (not with batch norm).")] = True,
    most: Annotated[float, typer.Option(min=0.0, help="Most cores to try; 0 for all of this machine.")] = 0.0,
    least: Annotated[float, typer.Option(help="Fewest cores to try; below 1 needs a CPU quota.")] = 0.5,
    again: Annotated[bool, typer.Option("--again", help="Measure what is in the file already, too.")] = False,
    within: Annotated[float, typer.Option(help="Begin nothing more after so many seconds; call again to go on.")] = 0.0,
    json_: opt.Plain = False,
) -> None:
    """Measure commands that use cotenant.runtime, for --profile: cotenant profile -- python train.py.

    Start, speed, GPU and host memory, busy time, saving, restoring, suspension, batches and cores; pairs with --pairs.
    """
    from cotenant.cli.progress import progress_bar
    from cotenant.profiler import ASPECTS, Mix, MixOptions, Wanted, open_file

    opt.check_targets(out)
    chosen = _words(measure, "--measure", ASPECTS)
    wanted = Wanted(budget, chosen, _sizes(batches), *_cores(most, least))
    options = MixOptions(
        wanted, pairs or bool(beside), [one for one in beside.split(",") if one],
        _words(share, "--share", ("time", "mps")), twins=twins, again=again, window_s=seconds,
        within_s=within or opt.INFINITY,
    )  # fmt: skip
    commands = _commands(command_of(ctx), jobs or [], name, gpus, cut)
    file = open_file(Path(out))
    told: Callable[[str], object] = (lambda text: typer.echo(text, err=True)) if json_ else typer.echo
    with progress_bar(f"profiling into {out}") as progress:
        mix = Mix(Path(out), file, commands, options, told, progress)
        report = mix.run(lambda how: _backend(how, max(command.gpus for command in commands)))
    if json_:
        typer.echo(_json(out, mix.file, report))
    else:
        typer.echo(_summary(out, mix.file, report))
    if report.errors:
        raise typer.Exit(1)


def _words(text: str, option: str, known: Sequence[str]) -> list[str]:
    from cotenant.core.errors import unknown

    words = [word for word in text.split(",") if word and word != "none"]
    for word in words:
        if word not in known:
            raise unknown(option, word, known)
    return words


def _sizes(text: str) -> list[int]:
    from cotenant.core.errors import InputError

    words = [word for word in text.split(",") if word]
    if not all(word.isdigit() and int(word) for word in words):
        raise InputError(f"--batches {text}: write batch sizes, e.g. 8,16,32")
    return [int(word) for word in words]


def _cores(most: float, least: float) -> tuple[float, float]:
    from cotenant.core.errors import InputError

    if not 0 < least < opt.INFINITY or (most and least > most):
        raise InputError(f"cores from {least:g} to {most:g}: both must be positive, and the first not above the second")
    return most, least


def _commands(argv: Sequence[str], files: Sequence[str], name: str, gpus: int, cut: bool) -> list[ProfiledCommand]:
    """The command after `--`, or those of job files: as many as there are models."""
    import os

    from cotenant.cli.command import job_of
    from cotenant.cli.job_files import read_job_files
    from cotenant.core.errors import InputError
    from cotenant.core.jobspec import parse_job
    from cotenant.profiler import ProfiledCommand

    here = {key: value for key, value in os.environ.items() if not key.startswith("COTENANT_")}
    if bool(argv) == bool(files):
        raise InputError("give a command after '--', or --jobs FILE: cotenant profile -- python train.py")
    if argv:
        label = name or str(job_of(list(argv))["name"])
        return [ProfiledCommand(label, tuple(argv), os.getcwd(), here, gpus, cut)]
    found: dict[str, ProfiledCommand] = {}
    for where, job in read_job_files(list(files)):
        spec = parse_job(job, where)
        model = spec.model or spec.name
        if model not in found:
            run = ("bash", "-c", f"{spec.setup}\n{spec.run}" if spec.setup else spec.run)
            folder = os.path.abspath(os.path.expanduser(spec.workdir or "."))
            cuts = cut and spec.batch_size > 0
            found[model] = ProfiledCommand(model, run, folder, {**here, **spec.env}, spec.gpus, cuts)
    return list(found.values())


@contextmanager
def _backend(share: str, gpus: int) -> Iterator[Backend]:
    """This machine, in a folder that goes away; virtual GPUs where there are no real ones."""
    import tempfile

    from cotenant.backends import open_backend
    from cotenant.backends.local import mps

    with tempfile.TemporaryDirectory(prefix="cotenant-profile-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        backend = open_backend("local", home, share=share)
        if gpus and not any(node.gpus for node in backend.nodes()):
            backend.close()
            backend = open_backend("local", home, gpus=gpus, share=share)
        try:
            yield backend
        finally:
            backend.close()
            if share == "mps":
                mps.stop(home / "jobs" / "mps")


def _json(out: str, file: ProfileFile, report: MixReport) -> str:
    import json
    from dataclasses import asdict

    from cotenant.workload.profiles.profile_file import as_data

    data: dict[str, Any] = {"file": out, **as_data(file), "report": asdict(report)}
    return json.dumps(data, indent=2)


def _summary(out: str, file: ProfileFile, report: MixReport) -> str:
    """All that the file knows, as a table, and what is left to do."""
    from cotenant.cli.text_table import TextTable

    heads = (
        "model",
        "GPU",
        "batch",
        "steps/s",
        "GiB",
        "busy",
        "cores",
        "start",
        "save",
        "restore",
        "suspend",
        "resume",
        "exit",
    )
    rows = []
    for name, model in file.models.items():
        for kind, one in model.on.items():
            cycle = one.lifecycle
            times = (cycle.start_s, cycle.save_s, cycle.restore_s, cycle.suspend_s, cycle.resume_s, cycle.exit_s)
            figures = (one.steps_per_s, one.gpu_gib, one.busy, one.cores, *times)
            rows.append((name, kind, str(one.batch or "-"), *("-" if x != x else f"{x:.4g}" for x in figures)))
    table = TextTable(heads, rows, heads[2:]).text() + "\n" if rows else ""
    spent = sum(report.seconds.values())
    lines = [
        f"{table}commands measured: {len(report.seconds)}, in {spent:.0f} s; pairs: {report.pairs}; all is in {out}"
    ]
    if report.errors:
        lines.append(f"{len(report.errors)} could not be measured: see above")
    if report.left:
        lines.append(f"{report.left} measurements are left: call it again to go on")
    return "\n".join(lines)
