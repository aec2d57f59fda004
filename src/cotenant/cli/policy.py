"""`cotenant policy`: the live policy, and how to change it."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

app = typer.Typer(help="Show or change the live policy.", invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def policy(ctx: typer.Context, json_: opt.Plain = False) -> None:
    """Show or change the live policy."""
    if ctx.invoked_subcommand is None:
        with remote.connected() as client:
            _tell(client.policy(), json_)


@app.command("set")
def set_policy(
    name: Annotated[
        str,
        typer.Argument(
            help="A policy (see `cotenant policies`).", metavar="POLICY", autocompletion=remote.complete_policies
        ),
    ],
    json_: opt.Plain = False,
) -> None:
    """Go on under another policy (admin)."""
    with remote.connected() as client:
        _tell(client.set_policy(name), json_)


def _tell(name: str, json_: bool) -> None:
    remote.print_json({"policy": name}) if json_ else typer.echo(name)
