"""`cotenant open`: the service's page, in a browser that is signed in by a link good for once."""

from __future__ import annotations

from typing import Annotated

import typer


def open_(
    print_: Annotated[bool, typer.Option("--print", help="Print the link instead of opening a browser.")] = False,
) -> None:
    """Open the service's page in a browser and sign it in as you. The link works once, for a minute."""
    import webbrowser

    from cotenant.cli import remote
    from cotenant.client.home import page_url
    from cotenant.core.errors import InputError

    with remote.connected() as client:
        link = f"{page_url(client.url)}/#code={client.sign_in_code()}"
    if print_:
        typer.echo(link)
    elif not webbrowser.open(link):
        raise InputError("no browser is found here: `cotenant open --print` prints the link for one elsewhere")
