"""`cotenant maintenance`: times for which nodes are shut."""

from __future__ import annotations

import typer

from cotenant.cli import options as opt
from cotenant.cli import windows

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Shut nodes for a time: add, list, remove.")


@app.command("add")
def add(
    from_: windows.From,
    for_: windows.For,
    nodes: windows.Nodes = None,
    all_: windows.All = False,
    note: windows.Note = "",
    json_: opt.Plain = False,
) -> None:
    """Shut nodes for a time (admin). Nothing starts there that would not end before; who is left then must leave."""
    windows.add("maintenance", nodes, all_, from_, for_, json_, note=note)


@app.command("list")
def list_(json_: opt.Plain = False) -> None:
    """List maintenance to come or in force."""
    windows.list_("maintenance", json_)


@app.command("remove")
def remove(window: windows.Id) -> None:
    """Open the nodes before the time is over (admin)."""
    windows.remove(window)
