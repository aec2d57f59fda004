"""`cotenant serve`: run jobs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    policy: Annotated[str, typer.Option(help="A policy (see `cotenant policies`).")] = "fifo",
    db: Annotated[str, typer.Option(help="Journal: sqlite:///FILE or postgresql://...; else a file at home.")] = "",
    gpus: Annotated[
        str, typer.Option(help="How many; virtual ones on a machine without. auto: all there are.")
    ] = "auto",
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others than loopback let strangers try.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8470,
    grace: Annotated[float, typer.Option(min=0, help="Seconds a job gets to save and leave.")] = 30.0,
    max_suspended: Annotated[
        int, typer.Option(min=0, help="Suspended jobs kept at a time: each holds host memory. 0: stop them instead.")
    ] = 8,
    home: Annotated[str, typer.Option(help="Folder for state and token; else COTENANT_HOME or ~/.cotenant.")] = "",
) -> None:
    """Run the service: API and scheduler in one process. Prints its URL; the token is at home, in `token`."""
    from cotenant.api.app import make_app
    from cotenant.client.home import home as default_home
    from cotenant.core.errors import InputError
    from cotenant.policies import make_policy
    from cotenant.service import run

    if gpus != "auto" and not (gpus.isascii() and gpus.isdigit() and len(gpus) <= 6):
        raise InputError(f"--gpus {gpus}: write a number from 0 up, or auto")
    if not grace < 86400:
        raise InputError(f"--grace {grace:g}: write seconds, at most a day")
    make_policy(policy)
    folder = Path(home).expanduser() if home else default_home()
    count = None if gpus == "auto" else int(gpus)
    run.serve(
        make_app, home=folder, policy=policy, db=db or None, gpus=count, host=host, port=port, grace_s=grace,
        max_suspended=max_suspended,
    )  # fmt: skip
