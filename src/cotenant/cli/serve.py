"""`cotenant serve`: run jobs, on this machine or wherever a backend leads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli.options import Oversubscribe

if TYPE_CHECKING:
    from cotenant.service.options import Keep

FOREVER = "forever"


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
    max_priority: Annotated[
        int, typer.Option(help="The highest priority that users may ask for; admins may ask for more.")
    ] = 0,
    notify: Annotated[str, typer.Option(help="YAML file: whom to tell of jobs, and how (docs/jobs.md).")] = "",
    max_suspended: Annotated[
        int, typer.Option(min=0, help="Suspended jobs kept at a time: each holds host memory. 0: stop them instead.")
    ] = 8,
    round_: Annotated[
        float, typer.Option("--round", help="Seconds per round, for policies that have rounds (gavel, allox, ...).")
    ] = 360.0,
    prefetch_starts: Annotated[
        bool,
        typer.Option(help="Start jobs ahead of their GPUs; they load and wait for them (docs/operations.md)."),
    ] = False,
    profile: Annotated[
        str, typer.Option(help="Speeds by model and GPU type: none, h200, tiresias or a file, as in `simulate`.")
    ] = "none",
    estimator: Annotated[
        str,
        typer.Option(help="How durations are learned from finished jobs: shrunk, rolling, ... (docs/beliefs.md)."),
    ] = "",
    power: Annotated[
        str, typer.Option(help="Let idle nodes sleep: ces as in `simulate`, or queue:linger=300 (docs/operations.md).")
    ] = "",
    unhealthy_after: Annotated[
        str, typer.Option(help="Jobs/seconds: so many fail there and run elsewhere, and a node or GPU is drained.")
    ] = "3/3600",
    placement: Annotated[
        str, typer.Option(help="Nodes of a gang: consolidated, spread or skew:limit=X (docs/policies.md).")
    ] = "consolidated",
    share: Annotated[
        str,
        typer.Option(help="How jobs share a GPU, under policies that let them: time (by turns) or mps (at once)."),
    ] = "time",
    defrag: Annotated[
        bool, typer.Option("--defrag", help="Move running jobs that can save together where that lets a gang start.")
    ] = False,
    oversubscribe: Oversubscribe = "",
    allocator: Annotated[
        str, typer.Option(help="Deal out cores and memory while jobs run, e.g. synergy-tune. Else: what each job asks.")
    ] = "",
    curves: Annotated[str, typer.Option(help="File of curves from `cotenant profile`, for --allocator.")] = "",
    backend: Annotated[
        str, typer.Option(help="Where jobs run, NAME[:key=value,...]: local, or one that is installed.")
    ] = "local",
    cluster: Annotated[
        str,
        typer.Option(help="YAML file: tenants, and for whom nodes are (docs/operations.md). Once; then: `tenants`."),
    ] = "",
    isolation: Annotated[
        str, typer.Option(help="Keep tenants apart, as root: none, user (each is a user), sandbox (and namespaces).")
    ] = "none",
    network: Annotated[str, typer.Option(help="What jobs in a sandbox have of it: host, loopback or none.")] = "host",
    user_map: Annotated[
        str, typer.Option(help="File of lines TENANT USER, for --isolation; tenants not in it get users of their own.")
    ] = "",
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
    keep_jobs: Annotated[str, typer.Option(help="How long ended jobs are known: 30d, 12h, forever.")] = "30d",
    keep_logs: Annotated[str, typer.Option(help="How long their output is kept; else as long as they are known.")] = "",
    keep_checkpoints: Annotated[
        str, typer.Option(help="How long checkpoints in the service's folder outlive their job.")
    ] = FOREVER,
    forecast_every: Annotated[
        str, typer.Option(help="Foretell the ends of all jobs at most so often; 0: never (docs/forecasts.md).")
    ] = "5s",
    backup_every: Annotated[str, typer.Option(help="Copy the journal so often, e.g. 6h, to backups/ at home.")] = "",
    backup_keep: Annotated[int, typer.Option(min=1, help="How many such copies are kept.")] = 8,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another service leads, and take over from it (docs/operations.md)."),
    ] = False,
    unknown_jobs: Annotated[
        str, typer.Option(help="Jobs that run here though the journal does not know them: adopt or end. Else: refuse.")
    ] = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="text or json, a line each, on standard error.")] = "text",
) -> None:
    """Run the service: API and scheduler in one process. Prints its URL; the token is at home, in `token`."""
    from cotenant.api.front import Doors, listen, open_front, read_peer
    from cotenant.api.shares import read_limits
    from cotenant.api.signon import read_provider
    from cotenant.api.standby import StandbyDoor
    from cotenant.backends.local.isolation.levels import Isolation
    from cotenant.backends.local.machine import parse_gpus
    from cotenant.client.home import home as default_home
    from cotenant.core.declared import Oversubscription
    from cotenant.service import run
    from cotenant.service.failure_rule import FailureRule
    from cotenant.service.notify.settings import NOBODY, read_settings
    from cotenant.service.options import Options
    from cotenant.service.store.clock import since_boot_s
    from cotenant.workload.cluster_file import load_tenants

    count = parse_gpus(gpus)
    _check_site(backend, grace, round_, share, {"--unknown-jobs": unknown_jobs, "--log-level": log_level,
                                                "--log-format": log_format})  # fmt: skip
    Isolation.parse(isolation, network, user_map=user_map).check()
    _check_rules(policy, estimator, power, placement, allocator, curves, defrag)
    machines = load_tenants(cluster) if cluster else None
    if machines is not None and machines.network is not None:
        typer.echo(f"note: {cluster}: network: is for simulations; the service does not look at it", err=True)
    Oversubscription.parse(oversubscribe)
    told = read_settings(notify) if notify else NOBODY
    folder = Path(home).expanduser() if home else default_home()
    options = Options(
        folder, grace, max_suspended=max_suspended, round_s=round_, profile=profile, placement=placement,
        allocator=allocator, curves=curves, policy=policy, estimator=estimator, power=power, max_priority=max_priority,
        notify=told, steady=since_boot_s,
        keep=_keep(keep_jobs, keep_logs, keep_checkpoints), unknown_jobs=unknown_jobs, most_unfinished=max_jobs,
        forecast_every_s=_time(forecast_every, "--forecast-every"), defrag=defrag, oversubscribe=oversubscribe,
        failure_rule=FailureRule.parse(unhealthy_after), prefetch_starts=prefetch_starts,
        cluster=machines,
    )  # fmt: skip
    every_s = _time(backup_every or "0", "--backup-every")
    apart = {"isolation": isolation, "network": network, "user_map": user_map}
    doors = Doors(
        folder.absolute(), host, port, socket, socket_group, tls, read_provider(oidc) if oidc else None,
        dict(map(read_peer, peer or ())), read_limits(limits),
    )  # fmt: skip
    site = run.Site(db or None, backend, count, share, every_s, backup_keep, log_level, log_format, **apart)
    tcp = listen(doors)
    waiting = {"standby": partial(StandbyDoor, doors, tcp)} if standby else {}
    run.serve(partial(open_front, doors, tcp), options, site, **waiting)


def _check_site(backend: str, grace_s: float, round_s: float, share: str, words: dict[str, str]) -> None:
    """Where and how it runs."""
    from cotenant.backends.registry import check_backend
    from cotenant.core.errors import InputError, unknown
    from cotenant.service import logs
    from cotenant.service.observer.unknown import WAYS

    check_backend(backend)
    if not grace_s < 86400:
        raise InputError(f"--grace {grace_s:g}: write seconds, at most a day")
    if not 0.1 <= round_s < 86400:
        raise InputError(f"--round {round_s:g}: write seconds, from 0.1 to a day")
    if share not in ("time", "mps"):
        raise unknown("--share", share, ("time", "mps"))
    known = {"--unknown-jobs": ("", *WAYS), "--log-level": logs.LEVELS, "--log-format": logs.FORMATS}
    for option, word in words.items():
        if word not in known[option]:
            raise unknown(option, word, [one for one in known[option] if one])


def _check_rules(
    policy: str, estimator: str, power: str, placement: str, allocator: str, curves: str, defrag: bool
) -> None:
    """By which it decides."""
    from cotenant.allocation import make_allocator
    from cotenant.beliefs.estimators import make_learner
    from cotenant.core.errors import InputError
    from cotenant.placement.modes import check_live
    from cotenant.policies import make_policy
    from cotenant.power import parse_power, parse_queue
    from cotenant.workload.profiles.curves import load_curves

    make_policy(policy)
    if estimator:
        make_learner(estimator)
    if power:
        (parse_queue if power.partition(":")[0] == "queue" else parse_power)(power)
    check_live(placement)
    if allocator:
        make_allocator(allocator)
    if defrag and allocator.split(":")[0] not in ("", "fixed"):
        raise InputError(f"--defrag does not go with --allocator {allocator}, which places jobs itself")
    if curves:
        load_curves(Path(curves))


def _keep(jobs: str, logs: str, checkpoints: str) -> Keep:
    from cotenant.service.options import Keep

    logs_s = _time(logs, "--keep-logs") if logs else None
    return Keep(_time(jobs, "--keep-jobs"), logs_s, _time(checkpoints, "--keep-checkpoints"))


def _time(text: str, option: str) -> float:
    """Seconds; `forever` is without end."""
    from cotenant.core.jobspec import seconds_of

    return float("inf") if text == FOREVER else seconds_of(text, option)
