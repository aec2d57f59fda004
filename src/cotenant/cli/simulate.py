"""`cotenant simulate`: one workload, one cluster, one policy."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt


def simulate(
    trace: opt.Trace,
    cluster: opt.ClusterSpec,
    policy: opt.PolicySpec = "fifo",
    placement: opt.Placement = "consolidated",
    allocator: opt.Allocator = "fixed",
    profile: opt.Profile = "none",
    models: opt.Models = "",
    estimator: opt.Estimator = "",
    costs: opt.Costs = "default",
    round_s: opt.Round = 360.0,
    compat: opt.Compat = "",
    measure: opt.Measure = "",
    until: opt.Until = opt.INFINITY,
    seed: opt.Seed = 0,
    fail_nodes: opt.FailNodes = "",
    power: opt.Power = "",
    skip_infeasible: opt.SkipInfeasible = False,
    format_: opt.Format = "",
    json_: opt.Json = "",
    jobs_csv: Annotated[str, typer.Option("--jobs-csv", help="Write one row per job to FILE.")] = "",
) -> None:
    """Replay a job log, or a generated workload, under one policy."""
    from cotenant.cli.progress import progress_bar
    from cotenant.report.jobs_csv import write_jobs_csv
    from cotenant.report.table import print_summary
    from cotenant.sim import driver

    opt.check_targets(json_, jobs_csv)
    machines = opt.load_cluster(cluster)
    work = opt.load_workload(trace, machines.gpus, format_=format_, profile=profile, models=models)
    experiment = opt.make_experiment(
        work, machines, policy, placement=placement, allocator=allocator, profile=profile, estimator=estimator,
        costs=costs, round_s=round_s, compat=compat, measure=measure, until=until, seed=seed,
        fail_nodes=fail_nodes, skip_infeasible=skip_infeasible, power=power,
    )  # fmt: skip
    with progress_bar(f"{policy} on {cluster}") as progress:
        outcome = driver.simulate(experiment, progress)
    opt.tell(experiment.notes)
    if jobs_csv:
        opt.guarded_write(jobs_csv, lambda: write_jobs_csv(outcome, jobs_csv))
    if json_:
        opt.write_json(outcome.summary, json_)
    if json_ != "-":
        print_summary(outcome.summary, opt.console())
