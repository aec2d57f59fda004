"""`cotenant serve`: run jobs, on this machine or wherever a backend leads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def serve(
    policy: Annotated[str, typer.Option(help="A policy (see `cotenant policies`).")] = "fifo",
    db: Annotated[str, typer.Option(help="Journal: sqlite:///FILE or postgresql://...; else a file at home.")] = "",
    gpus: Annotated[
        str, typer.Option(help="How many; virtual ones on a machine without, or by type: v100:2,k80:2. auto: all.")
    ] = "auto",
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others than loopback let strangers try.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8470,
    grace: Annotated[float, typer.Option(min=0, help="Seconds a job gets to save and leave.")] = 30.0,
    max_suspended: Annotated[
        int, typer.Option(min=0, help="Suspended jobs kept at a time: each holds host memory. 0: stop them instead.")
    ] = 8,
    round_: Annotated[
        float, typer.Option("--round", help="Seconds per round, for policies that have rounds (gavel, allox, ...).")
    ] = 360.0,
    profile: Annotated[
        str, typer.Option(help="Speeds by model and GPU type: none, h200, tiresias or a file, as in `simulate`.")
    ] = "none",
    share: Annotated[
        str,
        typer.Option(help="How jobs share a GPU, under policies that let them: time (by turns) or mps (at once)."),
    ] = "time",
    allocator: Annotated[
        str, typer.Option(help="Deal out cores and memory while jobs run, e.g. synergy-tune. Else: what each job asks.")
    ] = "",
    curves: Annotated[str, typer.Option(help="File of curves from `cotenant profile`, for --allocator.")] = "",
    backend: Annotated[
        str, typer.Option(help="Where jobs run, NAME[:key=value,...]: local, or one that is installed.")
    ] = "local",
    socket: Annotated[
        str, typer.Option(help="Unix socket for this machine's users: a path, auto (api.sock at home) or none.")
    ] = "auto",
    socket_group: Annotated[str, typer.Option(help="Group that may connect to the socket; else the owner only.")] = "",
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="User of this machine who needs no token on the socket, NAME=ROLE[:TENANT]; may be repeated."
        ),
    ] = None,
    tls: Annotated[str, typer.Option(help="TLS for TCP: auto (a certificate is made), or CERT,KEY.")] = "",
    oidc: Annotated[
        str,
        typer.Option(help="Sign-on: issuer=URL,client=ID,role_claim=C,tenant_claim=C,map=VALUE:ROLE[:TENANT];..."),
    ] = "",
    limits: Annotated[
        str, typer.Option(help="Of one caller, e.g. requests=32,rate=1000,streams=64,polls=64 (docs/api.md).")
    ] = "",
    max_jobs: Annotated[int, typer.Option(min=1, help="Unfinished jobs that one caller may have.")] = 250_000,
    home: Annotated[str, typer.Option(help="Folder for state and token; else COTENANT_HOME or ~/.cotenant.")] = "",
) -> None:
    """Run the service: API and scheduler in one process. Prints its URL; the token is at home, in `token`."""
    from cotenant.allocation import make_allocator
    from cotenant.api.front import Doors, open_front, read_peer
    from cotenant.api.shares import read_limits
    from cotenant.api.signon import read_provider
    from cotenant.backends.local.machine import parse_gpus
    from cotenant.backends.registry import check_backend
    from cotenant.client.home import home as default_home
    from cotenant.core.errors import InputError, unknown
    from cotenant.policies import make_policy
    from cotenant.service import run
    from cotenant.service.options import Options
    from cotenant.workload.profiles.curves import load_curves

    count = parse_gpus(gpus)
    check_backend(backend)
    if not grace < 86400:
        raise InputError(f"--grace {grace:g}: write seconds, at most a day")
    if not 0.1 <= round_ < 86400:
        raise InputError(f"--round {round_:g}: write seconds, from 0.1 to a day")
    if share not in ("time", "mps"):
        raise unknown("--share", share, ("time", "mps"))
    make_policy(policy)
    if allocator:
        make_allocator(allocator)
    if curves:
        load_curves(Path(curves))
    folder = Path(home).expanduser() if home else default_home()
    options = Options(
        folder, grace, max_suspended=max_suspended, round_s=round_, profile=profile, allocator=allocator,
        curves=curves, policy=policy, most_unfinished=max_jobs,
    )  # fmt: skip
    doors = Doors(
        folder.absolute(), host, port, socket, socket_group, tls, read_provider(oidc) if oidc else None,
        dict(map(read_peer, peer or ())), read_limits(limits),
    )  # fmt: skip
    run.serve(partial(open_front, doors), options, run.Site(db or None, backend, count, share))
