"""`cotenant simulate`: one workload, one cluster, one policy."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup


@spread_setup()
def simulate(
    trace: opt.Trace,
    cluster: opt.ClusterSpec,
    policy: opt.PolicySpec = "fifo",
    setup: Setup = USUAL,
    json_: opt.Json = "",
    jobs_csv: Annotated[str, typer.Option("--jobs-csv", help="Write one row per job to FILE.")] = "",
) -> None:
    """Replay a job log, or a generated workload, under one policy."""
    from cotenant.cli.progress import compiling, progress_bar
    from cotenant.report.jobs_csv import write_jobs_csv
    from cotenant.report.table import print_summary, print_tenants
    from cotenant.sim import driver

    opt.check_targets(json_, jobs_csv)
    machines = opt.load_cluster(cluster)
    work = setup.workload(trace, machines.gpus)
    experiment = setup.experiment(work, machines, policy)
    with progress_bar(f"{policy} on {cluster}", compiling(len(work), machines.gpus)) as progress:
        outcome = driver.simulate(experiment, progress)
    opt.tell(experiment.notes)
    if jobs_csv:
        opt.guarded_write(jobs_csv, lambda: write_jobs_csv(outcome, jobs_csv))
    if json_:
        opt.write_json(outcome.as_dict(), json_)
    if json_ != "-":
        print_summary(outcome.summary, opt.console())
        print_tenants(outcome.tenants, opt.console())
