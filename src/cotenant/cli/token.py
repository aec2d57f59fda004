"""`cotenant token`: who may do what."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

app = typer.Typer(help="Make, list and revoke tokens (admin).", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _token() -> None:
    """Make, list and revoke tokens (admin)."""


@app.command()
def create(
    role: Annotated[str, typer.Option(help="admin, user or viewer.")],
    tenant: Annotated[str, typer.Option(help="The only tenant it sees; needed for users.")] = "",
    name: Annotated[str, typer.Option(help="Whose it is.")] = "",
    json_: opt.Plain = False,
) -> None:
    """Make a token and print its secret, which is shown this once."""
    from cotenant.core.errors import unknown
    from cotenant.service.facade import Role

    if role not in list(Role):
        raise unknown("role", role, [item.value for item in Role])
    with remote.connected() as client:
        token, secret = client.create_token(name, role, tenant)
    if json_:
        remote.print_json({"token": remote.plain(token), "secret": secret})
        return
    typer.echo(f"token {token.id} ({token.role}{', tenant ' + token.tenant if token.tenant else ''}):", err=True)
    typer.echo(secret)


@app.command("list")
def list_(json_: opt.Plain = False) -> None:
    """List tokens, without their secrets."""
    with remote.connected() as client:
        found = client.tokens()
    if json_:
        remote.print_json(found)
        return
    rows = [
        (item.id, item.name, item.role, item.tenant or "(all)", remote.clock(item.created_s), "yes" * item.revoked)
        for item in found
    ]
    remote.print_table(remote.table(("id", "name", "role", "tenant", "created", "revoked"), rows))


@app.command()
def revoke(token: Annotated[str, typer.Argument(help="Id, as in `token list`; not the secret.")]) -> None:
    """Make a token useless at once."""
    with remote.connected() as client:
        client.revoke_token(token)
    typer.echo(f"{token}: revoked")
