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
    expires: Annotated[str, typer.Option(help="For how long, e.g. 12h, 30d; without: until it is revoked.")] = "",
    scopes: Annotated[str, typer.Option(help="Less than the role may: some of read,submit,manage,admin,metrics.")] = "",
    json_: opt.Plain = False,
) -> None:
    """Make a token and print its secret, which is shown this once."""
    from cotenant.core.errors import unknown
    from cotenant.service.facade import SCOPES, Role

    if role not in list(Role):
        raise unknown("role", role, [item.value for item in Role])
    asked = [item.strip() for item in scopes.split(",") if item.strip()]
    for scope in asked:
        if scope not in SCOPES:
            raise unknown("scope", scope, SCOPES)
    with remote.connected() as client:
        token, secret = client.create_token(name, role, tenant, scopes=asked, expires=expires or None)
    if json_:
        remote.print_json({"token": remote.plain(token), "secret": secret})
        return
    more = [f"tenant {token.tenant}"] if token.tenant else []
    more += [f"for {', '.join(token.scopes)}"] if token.scopes else []
    more += [f"until {remote.clock(token.expires_s)}"] if token.expires_s is not None else []
    typer.echo(f"token {token.id} ({', '.join([token.role, *more])}):", err=True)
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
        (item.id, item.name, item.role, item.tenant or "(all)", ",".join(item.scopes) or "(all)",
         remote.clock(item.created_s), remote.clock(item.expires_s), remote.clock(item.used_s), "yes" * item.revoked)
        for item in found
    ]  # fmt: skip
    columns = ("id", "name", "role", "tenant", "scopes", "created", "expires", "used", "revoked")
    remote.print_table(remote.table(columns, rows))


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="Id, as in `token list`; not the secret.")],
    force: Annotated[bool, typer.Option("--force", help="Also the last one of an admin.")] = False,
) -> None:
    """Make a token useless at once."""
    with remote.connected() as client:
        client.revoke_token(token, force=force)
    typer.echo(f"{token}: revoked")
