"""`cotenant backup`: a copy of the journal."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def backup(
    name: Annotated[str, typer.Argument(help="A new file's name; else one with the time.", metavar="[NAME]")] = "",
    json_: opt.Plain = False,
) -> None:
    """Copy the journal, consistently and while the service runs, to a new file in the service's own folder (admin)."""
    with remote.connected() as client:
        path = client.backup(name or time.strftime("backup-%Y%m%d-%H%M%S.db"))
    remote.print_json({"path": path}) if json_ else typer.echo(path)
