"""`cotenant calibrate`: how well policies explain what a log says happened."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup


@spread_setup("measure", "until", "power", "crash", "fail_nodes", "fail_jobs")
def calibrate(
    trace: opt.Trace,
    cluster: opt.ClusterSpec,
    policies: Annotated[str, typer.Option(help="Policies that might explain it, separated by commas.")] = (
        "slurm,fifo,easy,backfill"
    ),
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0 takes every core.")] = 0,
    setup: Setup = USUAL,
    json_: opt.Plain = False,
) -> None:
    """Compare the waits that a log tells with those that policies would have given, and say what a what-if is worth."""
    from cotenant.analysis.calibration import explain_log, verdict
    from cotenant.core.spec import split_specs
    from cotenant.policies import make_policy
    from cotenant.report.units import duration
    from cotenant.sim.as_is import as_it_happened, logged_starts
    from cotenant.sim.sweep import default_workers, plan_runs, run_all

    names = split_specs(policies)
    for name in names:
        make_policy(name)
    machines = opt.load_cluster(cluster)
    work = setup.workload(trace, machines.gpus)
    logged_starts(work)
    made = [setup.experiment(work, machines, name) for name in ("as-is", *names)]
    logged = as_it_happened(made[0])
    by_name = dict(zip(names, made[1:], strict=True))
    runs = list(
        run_all(plan_runs(names, [setup.seed], [None]), lambda run: by_name[run.policy], workers or default_workers())
    )
    opt.tell([note for experiment in made for note in experiment.notes])
    found = explain_log(logged, runs)
    if json_:
        opt.write_json({"policies": [one.as_dict() for one in found], "verdict": verdict(found)}, "-")
        return
    typer.echo(f"{'policy':<12}{'wait':>12}{'logged':>12}{'off by':>12}{'close':>8}{'rank':>8}{'JCT':>9}")
    for one in found:
        rank = "-" if one.rank is None else f"{one.rank:.2f}"
        times = "".join(f"{duration(value):>12}" for value in (one.wait_s, one.logged_wait_s, one.median_error_s))
        typer.echo(f"{one.policy:<12}{times}{100 * one.close:>6.0f} %{rank:>8}{100 * one.jct_error:>+7.0f} %")
    typer.echo("wait: mean; off by: median of |simulated - logged|; close: within 5 min or a factor of 2; JCT: mean")
    typer.echo(verdict(found) + ".")
