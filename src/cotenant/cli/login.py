"""`cotenant login`: sign on at the provider that a service trusts."""

from __future__ import annotations

from typing import Annotated

import typer


def login(
    url: Annotated[str, typer.Option(help="The service; else COTENANT_URL or that of the home.")] = "",
    pin: Annotated[str, typer.Option(help="SHA-256 of its certificate, where nobody vouches for it.")] = "",
    device: Annotated[
        bool, typer.Option("--device", help="By a code that you type elsewhere, without a browser.")
    ] = False,
) -> None:
    """Sign on. The token is kept at home for this service and sent to no other; it is renewed by itself."""
    import webbrowser
    from dataclasses import replace

    from cotenant.client import Client
    from cotenant.client.home import PIN, home, keep_login
    from cotenant.client.login import Issuer, by_browser, by_device

    def show(address: str) -> None:
        typer.echo(f"open {address}", err=True)
        webbrowser.open(address)

    with Client(url or None, f"{PIN}{pin}" if pin else None) as client:
        told = client.sign_on()
        where = client.url
    issuer = Issuer.find(**told)
    got = by_device(issuer, lambda text: typer.echo(text, err=True)) if device else by_browser(issuer, show)
    keep_login(home(), replace(got, url=where, pin=pin))
    with Client(url or None) as client:
        client.policy()
    typer.echo(f"signed on to {where}")
