"""`cotenant compare`: the same workload under several policies, as a table and one HTML file."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import grid
from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.core.outcome import Outcome
    from cotenant.core.workload import Workload
    from cotenant.sim.driver import Experiment
    from cotenant.sim.sweep import Run

INTERRUPTED = 130


@spread_setup()
def compare(
    trace: opt.Trace,
    cluster: opt.ClusterSpec,
    policies: Annotated[list[str], typer.Option(help="Policies, separated by commas; may be repeated.")],
    html: Annotated[str, typer.Option(help="Write a self-contained report to FILE.")] = "",
    workers: Annotated[str, typer.Option(help="Processes; 0 takes every core; ray[:address]: on a cluster.")] = "0",
    seeds: Annotated[str, typer.Option(help="Seeds such as 0-4 or 1,5: means with confidence intervals.")] = "",
    loads: Annotated[str, typer.Option(help="Offered loads such as 0.7,1.0,1.3.")] = "",
    vary: grid.Vary = None,
    baseline: Annotated[str, typer.Option(help="Policy that the others are compared with; else the first.")] = "",
    keep: Annotated[
        str, typer.Option(help="Keep finished runs in DIR, and take those that are there: goes on after Ctrl-C.")
    ] = "",
    setup: Setup = USUAL,
    json_: opt.Json = "",
    jobs_csv: Annotated[str, typer.Option("--jobs-csv", help="Write one file per policy into DIR.")] = "",
    gantt: Annotated[str, typer.Option(help="FROM-TO seconds of the Gantt chart in the report.")] = "",
) -> None:
    """Run a workload under several policies and compare them.

    Ctrl-C ends the runs that are not done yet; what is done is shown and written all the same.
    """
    from cotenant.core.errors import InputError
    from cotenant.policies import make_policy
    from cotenant.sim.ray_sweep import read_workers
    from cotenant.sim.sweep import plan_runs

    _check_targets(json_, html, jobs_csv, gantt, keep)
    where = read_workers(workers)
    machines = opt.load_cluster(cluster)
    names = _policies(policies)
    for name in names:
        make_policy(name)
    if baseline and baseline not in names:
        raise InputError(f"--baseline {baseline}: it must be one of --policies {','.join(names)}")
    if seeds and setup.seed:
        raise InputError(f"--seed {setup.seed} and --seeds {seeds} are both given: leave one of them out")
    cells = grid.parse(vary or [], machines)
    runs = plan_runs(names, grid.seeds(seeds) or [setup.seed], grid.loads(loads) or [None], cells)
    window = opt.parse_range(gantt, "--gantt")
    workloads = _Workloads(trace, setup, bool(seeds))
    experiments: list[Experiment] = []

    def make(run: Run) -> Experiment:
        here, played = grid.changed(run, replace(setup, seed=run.seed), machines)
        experiment = played.experiment(workloads.get(run, here, played), here, run.policy)
        experiments.append(experiment)
        return experiment

    outcomes, interrupted = _play(runs, make, where, keep)
    opt.tell([note for experiment in experiments for note in experiment.notes])
    several = len(runs) > len(names)
    _show(outcomes, baseline or names[0], several, cluster, json_, html, window)
    if jobs_csv:
        _write_jobs(outcomes, Path(jobs_csv), several)
    if interrupted:
        typer.echo(f"cotenant: interrupted: {len(outcomes)} of {len(runs)} runs are done", err=True)
        raise typer.Exit(INTERRUPTED)


def _check_targets(json_: str, html: str, jobs_csv: str, gantt: str, keep: str) -> None:
    from cotenant.core.errors import InputError

    opt.check_targets(json_, html)
    if keep and Path(keep).exists() and not Path(keep).is_dir():
        raise InputError(f"--keep '{keep}': name a folder; this is a file")
    if html == "-":
        raise InputError("--html -: name a file; a report is not printed")
    if gantt and not html:
        raise InputError(f"--gantt {gantt} is about the report: give --html FILE too")
    if jobs_csv and Path(jobs_csv).exists() and not Path(jobs_csv).is_dir():
        raise InputError(f"cannot write '{jobs_csv}': --jobs-csv of compare names a folder, and this is a file")


def _policies(texts: list[str]) -> list[str]:
    from cotenant.core.errors import InputError
    from cotenant.core.spec import split_specs

    names = [name for text in texts for name in split_specs(text)]
    if not names:
        raise InputError(f"--policies '{','.join(texts)}': write names such as fifo,srsf")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--policies: '{name}' is named twice")
    return names


def _play(runs: list[Run], make: grid.Make, where: tuple[int, str | None], keep: str) -> tuple[list[Outcome], bool]:
    """All outcomes in the order of the runs, and whether somebody pressed Ctrl-C before they were done."""
    from cotenant.cli.progress import compiling, progress_bar
    from cotenant.sim.kept import KeptRuns
    from cotenant.sim.sweep import default_workers, run_each

    made = {run: make(run) for run in runs}
    kept = KeptRuns(Path(keep)) if keep else None
    found = {} if kept is None else {at: kept.load(made[run]) for at, run in enumerate(runs)}
    done = {at: outcome for at, outcome in found.items() if outcome is not None}
    if done:
        opt.tell([f"{len(done)} of {len(runs)} runs are taken from {keep}"])
    todo = [at for at in range(len(runs)) if at not in done]
    interrupted = False
    largest = max(made.values(), key=lambda one: len(one.workload), default=None)
    first = compiling(len(largest.workload), largest.cluster.gpus) if largest is not None and todo else ""
    with progress_bar(f"{len(runs)} runs", first) as progress:
        try:
            left = [runs[at] for at in todo]
            processes, ray = where[0] or default_workers(), where[1]
            each = run_each(left, made.__getitem__, processes, lambda note: opt.tell([note]), ray)
            for at, outcome in each:
                done[todo[at]] = outcome
                if kept is not None:
                    kept.save(made[left[at]], outcome)
                if progress is not None:
                    progress(len(done), len(runs))
        except KeyboardInterrupt:
            if not done:
                raise
            interrupted = True
    return [done[at] for at in sorted(done)], interrupted


def _show(
    outcomes: list[Outcome], baseline: str, several: bool, cluster: str, json_: str, html: str,
    window: tuple[int, int] | None,
) -> None:  # fmt: skip
    """The comparison as a table, as JSON and as a report."""
    from cotenant.report.differences import print_differences
    from cotenant.report.paired import differences, doubts
    from cotenant.report.table import FIELDS, aggregate, comparison_rows, print_aggregates, print_comparison

    rows = comparison_rows(outcomes)
    sums = aggregate(rows) if several else None
    if sums is not None and len({row["seed"] for row in rows}) > 1 and all(row["runs"] == 1 for row in sums):
        opt.tell(["all seeds gave the same runs, since nothing here is random: no intervals over seeds"])
    lines = differences(rows, outcomes, baseline)
    unclear = doubts(rows, outcomes, {field.key: field.better for field in FIELDS})
    if json_:
        opt.write_json([outcome.as_dict() for outcome in outcomes], json_)
    if json_ != "-":
        if sums is not None:
            print_aggregates(sums, opt.console(), unclear)
        else:
            print_comparison(rows, opt.console(), unclear)
        print_differences(lines, opt.console())
    if html:
        from cotenant.report.html import write_html

        title = f"{len({outcome.policy for outcome in outcomes})} policies on {cluster}"
        opt.guarded_write(
            html,
            lambda: write_html(
                outcomes, Path(html), title=title, command=_command(), rows=rows, aggregates=sums,
                window_s=window, lines=lines, doubts=unclear,
            ),
        )  # fmt: skip
        typer.echo(f"report: {html}", err=json_ == "-")


class _Workloads:
    """Workloads per seed, load and cluster: a generator makes new ones, a log is stretched in time."""

    def __init__(self, trace: str, setup: Setup, reseed: bool) -> None:
        self._trace, self._setup, self._reseed = trace, setup, reseed
        self._made: dict[tuple[int | None, float | None, int, str], Workload] = {}

    def get(self, run: Run, machines: Cluster, setup: Setup) -> Workload:
        from cotenant.sim.sweep import scale_load
        from cotenant.workload.generators import GENERATORS

        generated = self._trace.split(":", 1)[0] in GENERATORS
        gpus = machines.gpus if generated or run.load is not None else 0
        key = (run.seed if generated and self._reseed else None, run.load, gpus, setup.profile)
        if key not in self._made:
            text = self._trace
            if generated:
                text = grid.with_params(text, seed=key[0], load=run.load)
            work = setup.workload(text, machines.gpus, quiet=bool(self._made))
            if not generated and run.load is not None:
                work = scale_load(work, machines.gpus, run.load)
            self._made[key] = work
        return self._made[key]


def _write_jobs(outcomes: list[Outcome], folder: Path, several: bool) -> None:
    from cotenant.report.jobs_csv import write_jobs_csv

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for outcome in outcomes:
            name = re.sub(r"[^\w.=+-]+", "_", outcome.policy).strip("._") or "policy"
            if several:
                name += f"-seed{outcome.summary['seed']}"
                name += f"-load{outcome.summary['load']}" if "load" in outcome.summary else ""
                if "varied" in outcome.summary:
                    name += "-" + re.sub(r"[^\w.=+-]+", "_", str(outcome.summary["varied"]))
            write_jobs_csv(outcome, folder / f"{name}.csv")

    opt.guarded_write(str(folder), write)


def _command() -> str:
    """The command line as typed, without what does not change the result."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word.startswith("--workers"):
            skip = word == "--workers"
            continue
        words.append(word)
    return shlex.join(["cotenant", *words])
