"""`cotenant restore`: a backup becomes the journal again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def restore(
    backup: Annotated[
        Path, typer.Argument(help="What `cotenant backup` printed: a name in backups/ at home, or a file.")
    ],
    to: Annotated[str, typer.Option(help="Home of the service; else COTENANT_HOME or ~/.cotenant.")] = "",
    db: Annotated[str, typer.Option(help="Journal, as in `serve --db`; else the file at home.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Although there is a journal: it is kept aside, under another name.")
    ] = False,
    json_: opt.Plain = False,
) -> None:
    """Make a backup the journal of a service that is stopped. What happened after the backup is lost."""
    from cotenant.client.home import home as default_home
    from cotenant.journal.replacing import replace_journal
    from cotenant.service import home as homes

    home = homes.prepare(Path(to).expanduser() if to else default_home())
    held = homes.hold(home)
    at_home = home / "backups" / backup
    try:
        done = replace_journal(
            backup if backup.exists() or not at_home.exists() else at_home, db or str(home / "journal.db"), force
        )
    finally:
        held.release()
    if json_:
        remote.print_json(done)
        return
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done.last_s))
    typer.echo(f"restored {done.last_seq} records, the last of {when}; start it with `cotenant serve`")
    if done.aside:
        typer.echo(f"the journal that was there is kept as {done.aside}")
