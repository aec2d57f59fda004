"""`cotenant top`: a screen that stays current."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import remote

if TYPE_CHECKING:
    from cotenant.client import Client

_ORDER = {name: at for at, name in enumerate(("running", "starting", "stopping", "suspended", "pending"))}


def top(
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and leave; so does a pipe.")] = False,
) -> None:
    """Show nodes and jobs as they change, until Ctrl-C, which ends only the screen."""
    with remote.connected() as client:
        if once or not sys.stdout.isatty():
            typer.echo(_screen(client, 10_000, remote.screen_width()))
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(highlight=False)
        with (
            remote.detaching("the jobs go on", code=0),
            Live(console=console, screen=True, auto_refresh=False) as screen,
        ):
            while True:
                screen.update(Text(_screen(client, console.height, console.width)), refresh=True)
                time.sleep(interval)


def _screen(client: Client, height: int, width: int | None) -> str:
    """Head, nodes, and as many jobs as fit: what runs first, then who is next."""
    from cotenant.cli.nodes import node_table

    nodes, jobs = client.nodes(), client.jobs(states=remote.UNFINISHED, limit=10_000)
    jobs.sort(key=lambda job: _ORDER.get(job.state, 9))
    used, gpus = sum(node.gpus_used for node in nodes), sum(node.gpus for node in nodes)
    waiting = sum(job.state == "pending" for job in jobs)
    head = f"{client.policy()} · {used}/{gpus} GPUs used · {len(jobs) - waiting} running · {waiting} waiting"
    room = max(1, height - len(nodes) - 9)
    more = [f"and {len(jobs) - room} more"] if len(jobs) > room else []
    tables = (node_table(nodes).text(width), "", remote.job_table(jobs[:room]).text(width))
    return "\n".join([f"{head} · {remote.clock(time.time())}", "", *tables, *more])
