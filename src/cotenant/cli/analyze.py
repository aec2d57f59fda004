"""`cotenant analyze`: the operator's report of a log, or of the service's own journal."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options as opt

if TYPE_CHECKING:
    from cotenant.analysis import JobTable

_MOST_COLUMNS = 120
_FEW = 6  # tenants and the like that a terminal shows
_SQLITE = b"SQLite format 3\0"


def analyze(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG", help="Job log (csv, json, gz, parquet), a generator, or a service's home."),
    ],
    cluster: Annotated[str, typer.Option(help="What it ran on: 32x8, or YAML with quotas. Else one is assumed.")] = "",
    html: Annotated[str, typer.Option(help="Write a self-contained page to FILE.")] = "",
    json_: opt.Json = "",
    no_replays: Annotated[
        bool, typer.Option("--no-replays", help="Only what the log says: no simulation of its worst stretch.")
    ] = False,
    format_: opt.Format = "",
    profile: Annotated[str, typer.Option(help="Throughputs, for logs that count steps (Gavel).")] = "",
) -> None:
    """Say who runs what, who waits and why, what fails, and what would have helped; each with what to do about it."""
    from cotenant.analysis import analyze as analyze_jobs
    from cotenant.cli.progress import progress_bar

    opt.check_targets(json_, html)
    machines = opt.load_cluster(cluster) if cluster else None
    gpus = machines.gpus if machines else None
    with (
        _table(log, format_, profile, gpus) as jobs,
        progress_bar("replays", "" if no_replays else _compiling(jobs.jobs)) as progress,
    ):
        report = analyze_jobs(jobs, machines, replays=not no_replays, progress=progress)
    if json_:
        opt.write_json(report, json_)
    if html:
        from cotenant.report.analysis_page import write_page

        opt.guarded_write(html, lambda: write_page(report, html, _command()))
    if json_ != "-":
        _print(report)
    if html:
        typer.echo(f"report: {html}", err=json_ == "-")


@contextmanager
def _table(log: str, format_: str, profile: str, gpus: int | None) -> Iterator[JobTable]:
    """The jobs of a file, a generator or a home; what is kept on disk meanwhile goes in the end."""
    from cotenant.analysis import gather
    from cotenant.cli.progress import progress_bar
    from cotenant.workload.generators import GENERATORS
    from cotenant.workload.readers.pieces import LogPiece, read_pieces

    if _is_journal(Path(log)):
        from cotenant.service.history import DURATION_MEANS, history

        pieces: Any = [LogPiece(history(Path(log)), DURATION_MEANS, 1, 1)]
    elif log.split(":", 1)[0] in GENERATORS:
        work = opt.load_workload(log, gpus, profile=profile, quiet=True)
        pieces = [LogPiece(work, "the time on GPUs, all attempts added up", 1, 1)]
    else:
        pieces = read_pieces(log, format=format_ or None, profile=profile or None)
    with tempfile.TemporaryDirectory(prefix="cotenant-analyze-") as folder:
        with progress_bar(f"reading {log}") as progress:
            jobs = gather(pieces, log, Path(folder), progress)
        yield jobs


def _compiling(jobs: int) -> str:
    """What the bar says first where replays have to be compiled; without a terminal it is told in a line."""
    from cotenant.analysis.replay import PLAIN_JOBS
    from cotenant.cli.progress import COMPILING
    from cotenant.core import jit

    if jobs <= PLAIN_JOBS or jit.is_cached():
        return ""
    if not sys.stderr.isatty():
        opt.tell(["replays of a large log are compiled, the first time in half a minute; --no-replays does without"])
    return COMPILING


def _is_journal(path: Path) -> bool:
    """Whether this is the home of a service, or a copy of its journal."""
    if not path.is_file():
        return path.is_dir()
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _print(report: dict[str, Any]) -> None:
    """Short tables, each with its advice; what the log lacks in the end."""
    from cotenant.cli.text_table import TextTable
    from cotenant.report.analysis_sections import headline, sections

    width = min(shutil.get_terminal_size((_MOST_COLUMNS, 24)).columns, _MOST_COLUMNS)
    typer.echo(f"{report['source']}\n{headline(report)}")
    for name in ("duration", "killed"):
        typer.echo(f"  {report['definitions'][name]}")
    for section in sections(report, _FEW):
        typer.echo(f"\n{section.title}")
        typer.echo(TextTable(section.columns, section.rows, right=section.columns[1:]).text(width))
        for line in section.remarks:
            typer.echo(f"  {line}")
        if section.advice:
            typer.echo(f"→ {section.advice}")
    if report["lacking_means"]:
        typer.echo("\nWhat the log does not say")
        for name, means in report["lacking_means"].items():
            typer.echo(f"  {name}: {means}")
    for note in report["notes"]:
        typer.echo(f"note: {note}", err=True)


def _command() -> str:
    return "cotenant " + " ".join(sys.argv[1:])
