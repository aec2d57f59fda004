"""What the verbs for a live service share: the connection, how jobs and times are shown, and detaching."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cotenant.cli.text_table import TextTable
    from cotenant.client import Client
    from cotenant.service.facade import JobInfo, Which

MEANT = "Ids, arrays (7), elements (7_3), ranges (7_[1-4,9]) or names."


def complete_jobs(incomplete: str) -> list[str]:
    """Ids and names of jobs for the shell; none where the service does not answer at once."""
    jobs = _ask_soon(lambda client: client.jobs(limit=1000))
    words = [word for job in reversed(jobs) for word in (job.id, job.name)]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def complete_nodes(incomplete: str) -> list[str]:
    """Names of nodes for the shell."""
    return [node.name for node in _ask_soon(lambda client: client.nodes()) if node.name.startswith(incomplete)]


def complete_policies(incomplete: str) -> list[str]:
    """Names of policies for the shell; of several, of the last."""
    from cotenant.policies.registry import known_policies

    before, comma, word = incomplete.rpartition(",")
    return [before + comma + name for name in sorted(known_policies()) if name.startswith(word)]


def _ask_soon(question: Callable[[Client], list[Any]]) -> list[Any]:
    from cotenant.client import Client
    from cotenant.core.errors import CotenantError

    try:
        with Client(timeout_s=1.0) as client:
            return question(client)
    except CotenantError:
        return []


Job = Annotated[str, typer.Argument(help="Job id, or a name.", metavar="JOB", autocompletion=complete_jobs)]
Jobs = Annotated[list[str], typer.Argument(help=MEANT, metavar="JOB...", autocompletion=complete_jobs)]
SomeJobs = Annotated[list[str] | None, typer.Argument(help=MEANT, metavar="[JOB]...", autocompletion=complete_jobs)]
Users = Annotated[list[str] | None, typer.Option("--user", help="Only jobs of this user; repeatable.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="Only jobs of this name; repeatable.")]
Tenants = Annotated[list[str] | None, typer.Option("--tenant", help="Only jobs of this tenant; repeatable.")]
States = Annotated[str, typer.Option("--state", help="Only these states, separated by commas.")]

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


def write(data: bytes) -> None:
    """Bytes on standard output, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def tell_gap() -> None:
    """A line about output that was rotated away before it could be shown."""
    typer.echo("cotenant: some output is not shown: it was rotated away before it was read", err=True)


def moment(text: str, option: str = "--since") -> float:
    """A time that somebody wrote, in Unix seconds: `2h` ago, or a date with time, local unless it says otherwise."""
    from datetime import datetime

    from cotenant.core.errors import InputError
    from cotenant.core.jobspec import parse_job

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return max(0.0, time.time() - parse_job({"run": "-", "expected": text}).expected_s)
    except InputError:
        raise InputError(
            f"{option} {text}: write how long ago, e.g. 90s, 30m, 2h, or a time: 2026-11-16T12:00"
        ) from None


def which(
    jobs: Sequence[str] | None = None, states: str = "", names: Sequence[str] | None = None,
    users: Sequence[str] | None = None, tenants: Sequence[str] | None = None,
) -> Which:  # fmt: skip
    """The jobs that arguments and options mean."""
    from cotenant.core.errors import unknown
    from cotenant.core.lifecycle import JobState
    from cotenant.service.facade import Which

    found = tuple(part.strip() for part in states.split(",") if part.strip())
    for name in found:
        if name not in list(JobState):
            raise unknown("state", name, [item.value for item in JobState])
    return Which(tuple(jobs or ()), found, tuple(names or ()), tuple(users or ()), tuple(tenants or ()))


def state_of(job: JobInfo) -> str:
    """How a job stands, in one line."""
    return f"{job.id}: {job.state}" + (f" ({clean(job.reason)})" if job.reason else "")


def change(verb: str, which: Which, json_: bool, told: Callable[[JobInfo], str] | None = None, **more: Any) -> None:
    """Do something to several jobs and say what came of each, as `told` does: exit code 2 if one refused.

    The JSON of a verb that takes one job (which has its own way to tell) is an object where it was one.
    """
    with connected() as client:
        done = client.change(verb, which, **more)
    if json_:
        rows = [{**({"id": item.id} if item.job is None else plain(item.job)), "error": item.error} for item in done]
        print_json(rows[0] if told and len(rows) == 1 else rows)
    for item in done:
        if item.error:
            typer.echo(f"cotenant: {clean(item.error)}", err=True)
        elif not json_ and item.job is not None:
            typer.echo(told(item.job) if told else state_of(item.job))
    if not done:
        typer.echo("no such jobs", err=True)
    if any(item.error for item in done):
        raise typer.Exit(2)


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


def finish(job: JobInfo, now_s: float | None = None) -> str:
    """When a job ended, or when it is expected to: `14:32 (14:20-15:05)`, the interval for 9 times of 10."""
    if job.ended_s is not None or job.expected_end_s is None:
        return clock(job.ended_s, now_s)
    low_s, high_s = job.expected_end_low_s, job.expected_end_high_s
    if low_s is None or high_s is None:
        return clock(job.expected_end_s, now_s)
    style = "%H:%M:%S" if high_s - low_s < 600 else "%H:%M"
    days = {time.localtime(at_s)[:3] for at_s in (low_s, high_s, job.expected_end_s)}
    if days != {time.localtime(now_s)[:3]}:
        style = "%m-%d %H:%M"
    end, low, high = (time.strftime(style, time.localtime(at_s)) for at_s in (job.expected_end_s, low_s, high_s))
    return f"{end} ({low}-{high})"


def spans(left_s: float | None, low_s: float | None = None, high_s: float | None = None) -> str:
    """A length of time with its interval: `12.0 min (9.00-20.0)`."""
    from cotenant.report.units import significant, unit_for

    if left_s is None or low_s is None or high_s is None:
        return span(left_s)
    unit = unit_for(left_s)
    low, high = (significant(max(limit_s, 0.0) / unit.seconds) for limit_s in (low_s, high_s))
    return f"{span(left_s)} ({low}-{high})"


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
         finish(job), reason(job))
        for job in jobs
    ]  # fmt: skip
    columns = ("id", "name", "tenant", "state", "gpus", "steps", "submitted", "finish", "reason")
    return table(columns, rows, right=("gpus", "steps"))


def reason(job: JobInfo) -> str:
    """Where it is, and of a replica that has its GPU how its service stands."""
    if job.service is None or job.state not in ("starting", "running"):
        return job.reason
    return "; ".join(text for text in (serving(job.service), job.reason) if text)


def serving(found: Mapping[str, Any]) -> str:
    """How an inference service stands, in one line."""
    limits = f" ({found['least']} to {found['most']})" if found["least"] < found["most"] else ""
    text = f"{found['replicas']} of {found['wanted']} replicas answer{limits}"
    if found["replicas"]:
        text += f", {found['requests_per_s']:.3g} requests/s, p99 {found['p99_ms']:.0f} of {found['target_ms']:g} ms"
    if found["within_target"] is not None:
        text += f", {found['within_target']:.2%} of {found['requests']:,} requests within target"
    return text


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
