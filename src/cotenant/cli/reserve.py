"""`cotenant reserve`: times for which nodes are open to one tenant or user only."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import windows

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keep nodes for somebody: add, list, remove.")


@app.command("add")
def add(
    from_: windows.From,
    for_: windows.For,
    nodes: windows.Nodes = None,
    all_: windows.All = False,
    gpus: Annotated[int, typer.Option(min=0, help="Instead of nodes: as few as have so many GPUs.")] = 0,
    tenant: Annotated[str, typer.Option(help="For this tenant.")] = "",
    user: Annotated[str, typer.Option(help="For this user.")] = "",
    note: windows.Note = "",
    json_: opt.Plain = False,
) -> None:
    """Keep nodes for a tenant, a user or both for a time (admin): to all others they are shut."""
    windows.add("reservation", nodes, all_, from_, for_, json_, gpus, tenant=tenant, user=user, note=note)


@app.command("list")
def list_(json_: opt.Plain = False) -> None:
    """List reservations to come or in force."""
    windows.list_("reservation", json_)


@app.command("remove")
def remove(window: windows.Id) -> None:
    """Open the nodes to all before the time is over (admin)."""
    windows.remove(window)
