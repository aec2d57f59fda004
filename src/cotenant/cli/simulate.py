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
    from contextlib import ExitStack
    from functools import partial

    from cotenant.cli.progress import compiling, progress_bar
    from cotenant.report.table import print_summary, print_tenants
    from cotenant.sim import driver

    opt.check_targets(json_, jobs_csv)
    machines = opt.load_cluster(cluster)
    work = setup.workload(trace, machines.gpus)
    experiment = setup.experiment(work, machines, policy)
    with ExitStack() as stack:
        ended = None
        if jobs_csv:
            from cotenant.report.jobs_csv import JobsCsv

            file = stack.enter_context(JobsCsv(jobs_csv))
            ended = partial(opt.guarded_write, jobs_csv, file.add)
        progress = stack.enter_context(progress_bar(f"{policy} on {cluster}", compiling(len(work), machines.gpus)))
        outcome = driver.simulate(experiment, progress, ended)
    opt.tell(experiment.notes)
    if json_:
        opt.write_json(outcome.as_dict(), json_)
    if json_ != "-":
        print_summary(outcome.summary, opt.console())
        print_tenants(outcome.tenants, opt.console())
