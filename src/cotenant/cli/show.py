"""`cotenant show`: everything about one job."""

from __future__ import annotations

import typer

from cotenant.cli import live
from cotenant.cli import options as opt


def show(job: live.Job, json_: opt.Plain = False) -> None:
    """Print one job with what was asked and every attempt."""
    with live.connected() as client:
        info = client.job(job)
    if json_:
        live.print_json(info)
        return
    lines: dict[str, object] = {
        "job": f"{info.id} ({info.name})",
        "tenant": f"{info.tenant}, submitted by {info.user}",
        "state": f"{info.state}: {info.reason}" if info.reason else info.state,
        "gpus": info.gpus,
        "priority": info.priority,
        "submitted": live.clock(info.submitted_s),
        "started": live.clock(info.started_s),
        "ended": live.clock(info.ended_s),
        "expected": live.clock(info.expected_end_s),
        "steps": live.progress(info) + (f", {info.step_time_s:.3g} s each" if info.step_time_s else ""),
        **{f"metric {name}": f"{value:.6g}" for name, value in info.metrics.items()},
        **{f"asked {name}": value for name, value in info.spec.items()},
    }
    width = max(len(live.clean(name)) for name in lines)
    for name, value in lines.items():
        typer.echo(f"{live.clean(name):<{width}}  {live.clean(value)}")
    if info.attempts:
        rows = [
            (item.number, item.state, live.clock(item.started_s), live.clock(item.ended_s),
             "-" if item.exit_code is None else item.exit_code, "-" if item.signal is None else item.signal,
             live.span(item.lost_s), ", ".join(f"{node}:{list(gpus)}" for node, gpus in item.nodes), item.why)
            for item in info.attempts
        ]  # fmt: skip
        columns = ("attempt", "state", "started", "ended", "exit", "signal", "lost", "where", "why")
        live.print_table(live.table(columns, rows))
