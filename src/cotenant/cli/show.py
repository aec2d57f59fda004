"""`cotenant show`: everything about one job, or an array as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

if TYPE_CHECKING:
    from cotenant.service.facade import JobInfo

_MOST_SHOWN = 1000


def show(
    job: Annotated[str, typer.Argument(help=remote.MEANT, metavar="JOB", autocompletion=remote.complete_jobs)],
    json_: opt.Plain = False,
) -> None:
    """Print one job with what was asked and every attempt; of an array or a range how many are in which state."""
    with remote.connected() as client:
        jobs = client.select([job])
        info = client.job(jobs[0].id) if len(jobs) == 1 else None
    if json_:
        remote.print_json(jobs if info is None else info)
    elif info is None:
        _several(job, jobs)
    else:
        _one(info)


def _several(name: str, jobs: Sequence[JobInfo]) -> None:
    from collections import Counter

    counts = Counter(str(info.state) for info in jobs)
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    typer.echo(f"{remote.clean(name)}: {len(jobs)} jobs: {states}")
    for text in dict.fromkeys(remote.serving(info.service) for info in jobs if info.service):
        typer.echo(f"service: {text}")
    remote.print_table(remote.job_table(jobs[:_MOST_SHOWN]))
    if len(jobs) > _MOST_SHOWN:
        typer.echo(f"and {len(jobs) - _MOST_SHOWN} more: --json prints all", err=True)


def _one(info: JobInfo) -> None:
    lines: dict[str, object] = {
        "job": f"{info.id} ({info.name})",
        "tenant": f"{info.tenant}, submitted by {info.user}",
        "state": f"{info.state}: {info.reason}" if info.reason else info.state,
        **({"service": remote.serving(info.service)} if info.service else {}),
        "gpus": info.gpus,
        "priority": info.priority,
        "submitted": remote.clock(info.submitted_s),
        "started": remote.clock(info.started_s),
        "ended": remote.clock(info.ended_s),
        "expected": remote.finish(info) if info.ended_s is None else "-",
        "steps": remote.progress(info) + (f", {info.step_time_s:.3g} s each" if info.step_time_s else ""),
        **({"on its GPUs": f"busy {info.gpu_busy:.0%}, {info.gpu_used_gib:.1f} GiB"} if info.gpu_used_gib else {}),
        **{f"metric {name}": f"{value:.6g}" for name, value in info.metrics.items()},
        **{f"asked {name}": value for name, value in info.spec.items()},
    }
    width = max(len(remote.clean(name)) for name in lines)
    for name, value in lines.items():
        typer.echo(f"{remote.clean(name):<{width}}  {remote.clean(value)}")
    if info.attempts:
        rows = [
            (item.number, item.state, remote.clock(item.started_s), remote.clock(item.ended_s),
             "-" if item.exit_code is None else item.exit_code, "-" if item.signal is None else item.signal,
             remote.span(item.lost_s), ", ".join(f"{node}:{list(gpus)}" for node, gpus in item.nodes), item.why)
            for item in info.attempts
        ]  # fmt: skip
        columns = ("attempt", "state", "started", "ended", "exit", "signal", "lost", "where", "why")
        remote.print_table(remote.table(columns, rows))
