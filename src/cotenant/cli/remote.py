"""What the verbs for a live service share: the connection, how jobs and times are shown, and detaching."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cotenant.cli.text_table import TextTable
    from cotenant.client import Client
    from cotenant.service.facade import JobInfo

Job = Annotated[str, typer.Argument(help="Job id.", metavar="JOB")]
Jobs = Annotated[list[str], typer.Argument(help="Job ids.", metavar="JOB...")]

UNFINISHED = ("pending", "starting", "running", "suspended", "stopping")


@contextmanager
def connected() -> Iterator[Client]:
    """The service named by COTENANT_URL, COTENANT_TOKEN or the files in COTENANT_HOME."""
    from cotenant.client import Client

    with Client() as client:
        yield client


@contextmanager
def detaching(what: str, code: int = 130) -> Iterator[None]:
    """Ctrl-C leaves the screen, never the job."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"cotenant: detached: {what}", err=True)
        raise typer.Exit(code) from None


def clock(moment_s: float | None, now_s: float | None = None) -> str:
    """A moment: the time today, with the date on other days, `-` for none."""
    if moment_s is None or moment_s - moment_s != 0:
        return "-"
    try:
        local, today = time.localtime(moment_s), time.localtime(now_s)
    except (OverflowError, OSError, ValueError):
        return "-"
    same = (local.tm_year, local.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", local)


def span(seconds: float | None) -> str:
    """A length of time, `-` for none."""
    from cotenant.report.units import duration

    return "-" if seconds is None else duration(seconds)


def clean(text: object) -> str:
    """Text from others, without what could steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in str(text))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> TextTable:
    """A plain table of texts that cannot steer a terminal."""
    from cotenant.cli.text_table import TextTable

    return TextTable(columns, [[clean(cell) for cell in row] for row in rows], right)


def job_table(jobs: Sequence[JobInfo]) -> TextTable:
    """Jobs in one line each."""
    rows = [
        (job.id, job.name, job.tenant, job.state, job.gpus, progress(job), clock(job.submitted_s),
         clock(job.ended_s if job.ended_s is not None else job.expected_end_s), job.reason)
        for job in jobs
    ]  # fmt: skip
    columns = ("id", "name", "tenant", "state", "gpus", "steps", "submitted", "finish", "reason")
    return table(columns, rows, right=("gpus", "steps"))


def progress(job: JobInfo) -> str:
    """Steps done, of how many."""
    if job.step is None:
        return "-"
    return f"{job.step}/{job.total_steps}" if job.total_steps else str(job.step)


def print_table(made: TextTable) -> None:
    """A table on standard output, as wide as it needs to be in a pipe."""
    typer.echo(made.text(screen_width()))


def screen_width() -> int | None:
    """Of the terminal; None in a pipe."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def plain(value: Any) -> Any:
    """A dataclass, or a list of them, for JSON."""
    from dataclasses import asdict, is_dataclass

    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def print_json(value: Any) -> None:
    """JSON on standard output."""
    from cotenant.cli import options as opt

    opt.write_json(plain(value), "-")
