"""`cotenant drain`: let nothing new start on a node."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote
from cotenant.cli.nodes import fault_words


def drain(
    node: Annotated[str, typer.Argument(help="Node, as in `cotenant nodes`.", metavar="NODE")],
    undo: Annotated[bool, typer.Option("--undo", help="Let jobs start there again, whatever was wrong.")] = False,
    json_: opt.Plain = False,
) -> None:
    """Let nothing new start on a node; what runs there may finish (admin)."""
    with remote.connected() as client:
        found = client.drain(node, undo)
    if json_:
        remote.print_json(found)
        return
    for item in found:
        if item.name == node:
            typer.echo(f"{item.name}: {item.state}")
            for fault in item.faults:
                typer.echo(f"  {fault_words(fault)}")
