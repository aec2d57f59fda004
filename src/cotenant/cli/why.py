"""`cotenant why`: why a job does not run, live or at a moment of a simulation."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup


@spread_setup("measure", "until", "power")
def why(
    trace: Annotated[str, typer.Argument(help="A live job's id; or a job log or generator.", metavar="JOB|TRACE")],
    job: Annotated[str, typer.Argument(help="With TRACE: job id, as in the log.", metavar="[JOB]")] = "",
    at: Annotated[
        float | None, typer.Option(parser=opt.seconds, metavar="TIME", help="The moment of the log: seconds, or 2h.")
    ] = None,
    cluster: Annotated[str, typer.Option(help="15x4, 32x8:h200, 9x4:v100+9x4:p100, 4x8/cpu=96,mem=768, or YAML.")] = "",
    policy: opt.PolicySpec = "fifo",
    setup: Setup = USUAL,
    json_: opt.Plain = False,
) -> None:
    """Say why a live job does not run, or why one was not running at a moment of a simulation.

    `cotenant why JOB` asks the live service; `cotenant why TRACE JOB --at S --cluster C` replays a log.
    """
    if not job and at is None and not cluster:
        _live(trace, json_)
        return
    for given, what in ((job, "argument 'JOB'"), (at is not None, "option '--at'"), (cluster, "option '--cluster'")):
        if not given:
            raise typer.BadParameter(f"Missing {what}: a simulation needs TRACE JOB --at S --cluster C.")
    assert at is not None
    import numpy as np

    from cotenant.core.errors import InputError, unknown
    from cotenant.engine.explain import explain
    from cotenant.sim.driver import Simulation

    if not abs(at) < opt.INFINITY:
        raise InputError(f"--at {at:g}: write a number of seconds")
    machines = opt.load_cluster(cluster)
    work = setup.workload(trace, machines.gpus)
    experiment = setup.experiment(work, machines, policy)
    run = Simulation(experiment)
    rows = np.flatnonzero(run.work.job_id == job)
    if not len(rows):
        raise unknown(f"job in {trace}", job, [str(name) for name in run.work.job_id[:50_000]])
    run.advance(at)
    reason = explain(run.engine, run.work, machines, int(rows[0]), at)
    if json_:
        opt.write_json(reason.as_dict(), "-")
    else:
        typer.echo(f"{reason.job} at {at:.12g} s under {policy}: {reason.cause}: {reason.text}")


def _live(job: str, json_: bool) -> None:
    from cotenant.cli import remote

    with remote.connected() as client:
        reason = client.why(job)
    if json_:
        remote.print_json(reason)
    else:
        typer.echo(remote.clean(f"{job}: {reason.get('cause', '')}: {reason.get('text', '')}"))
