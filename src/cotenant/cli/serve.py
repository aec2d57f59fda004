"""`cotenant serve`: run jobs on this machine."""

from __future__ import annotations

import re
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
    home: Annotated[str, typer.Option(help="Folder for state and token; else COTENANT_HOME or ~/.cotenant.")] = "",
) -> None:
    """Run the service: API and scheduler in one process. Prints its URL; the token is at home, in `token`."""
    from cotenant.allocation import make_allocator
    from cotenant.api.app import make_app
    from cotenant.client.home import home as default_home
    from cotenant.core.errors import InputError, unknown
    from cotenant.policies import make_policy
    from cotenant.service import run
    from cotenant.service.options import Options
    from cotenant.workload.profiles.curves import load_curves

    count = None if gpus == "auto" else parse_gpus(gpus)
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
        curves=curves, policy=policy,
    )  # fmt: skip
    run.serve(make_app, options, run.Site(db or None, count, "mps" if share == "mps" else "time", host, port))


def parse_gpus(text: str) -> int | list[str]:
    """`4` is a number of GPUs; `v100:2,p100:2` the type of each virtual one."""
    from cotenant.core.errors import InputError

    if re.fullmatch(r"[0-9]{1,6}", text):
        return int(text)
    types: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([A-Za-z0-9][\w.-]{0,62}):([0-9]{1,4})", part.strip(), re.ASCII)
        if match is None or match[1] in types or int(match[2]) < 1:
            raise InputError(f"--gpus {text}: write a number from 0 up, types as in v100:2,p100:2, or auto")
        types += [match[1]] * int(match[2])
    return types
