"""`cotenant why`: why a job was not running at a moment of a simulation."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt


def why(
    trace: opt.Trace,
    job: Annotated[str, typer.Argument(help="Job id, as in the log.")],
    at: Annotated[float, typer.Option(help="The moment, in seconds of the log.")],
    cluster: opt.ClusterSpec,
    policy: opt.PolicySpec = "fifo",
    placement: opt.Placement = "consolidated",
    allocator: opt.Allocator = "fixed",
    profile: opt.Profile = "none",
    estimator: opt.Estimator = "oracle",
    costs: opt.Costs = "default",
    round_s: opt.Round = 360.0,
    compat: opt.Compat = "",
    seed: opt.Seed = 0,
    fail_nodes: opt.FailNodes = "",
    skip_infeasible: opt.SkipInfeasible = False,
    format_: opt.Format = "",
    json_: opt.Plain = False,
) -> None:
    """Say why a job was not running at a moment of a simulation."""
    import numpy as np

    from cotenant.core.errors import InputError, unknown
    from cotenant.engine.explain import explain
    from cotenant.sim.driver import Simulation

    if not abs(at) < opt.INFINITY:
        raise InputError(f"--at {at:g}: write a number of seconds")
    machines = opt.load_cluster(cluster)
    work = opt.load_workload(trace, machines.gpus, format_=format_, profile=profile)
    experiment = opt.make_experiment(
        work, machines, policy, placement=placement, allocator=allocator, profile=profile, estimator=estimator,
        costs=costs, round_s=round_s, compat=compat, measure="", until=opt.INFINITY, seed=seed,
        fail_nodes=fail_nodes, skip_infeasible=skip_infeasible,
    )  # fmt: skip
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
