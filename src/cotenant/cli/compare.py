"""`cotenant compare`: the same workload under several policies, as a table and one HTML file."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli.setup import USUAL, Setup, spread_setup

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.core.outcome import Outcome
    from cotenant.core.workload import Workload
    from cotenant.sim.driver import Experiment
    from cotenant.sim.sweep import Run


@spread_setup()
def compare(
    trace: opt.Trace,
    cluster: opt.ClusterSpec,
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")],
    html: Annotated[str, typer.Option(help="Write a self-contained report to FILE.")] = "",
    workers: Annotated[str, typer.Option(help="Processes; 0 takes every core; ray[:address]: on a cluster.")] = "0",
    seeds: Annotated[str, typer.Option(help="Seeds such as 0-4 or 1,5: means with confidence intervals.")] = "",
    loads: Annotated[str, typer.Option(help="Offered loads such as 0.7,1.0,1.3.")] = "",
    setup: Setup = USUAL,
    json_: opt.Json = "",
    jobs_csv: Annotated[str, typer.Option("--jobs-csv", help="Write one file per policy into DIR.")] = "",
    gantt: Annotated[str, typer.Option(help="FROM-TO seconds of the Gantt chart in the report.")] = "",
) -> None:
    """Run a workload under several policies and compare them."""
    from cotenant.cli.progress import progress_bar
    from cotenant.core.errors import InputError
    from cotenant.core.spec import split_specs
    from cotenant.policies import make_policy
    from cotenant.report.table import aggregate, comparison_rows, print_aggregates, print_comparison
    from cotenant.sim.ray_sweep import read_workers
    from cotenant.sim.sweep import default_workers, plan_runs, run_all

    opt.check_targets(json_, html)
    if jobs_csv and Path(jobs_csv).exists() and not Path(jobs_csv).is_dir():
        raise InputError(f"cannot write '{jobs_csv}': --jobs-csv of compare names a folder, and this is a file")
    processes, ray = read_workers(workers)
    machines = opt.load_cluster(cluster)
    names = split_specs(policies)
    if not names:
        raise InputError(f"--policies '{policies}': write names such as fifo,srsf")
    for name in names:
        make_policy(name)
    runs = plan_runs(names, _seeds(seeds) or [setup.seed], _loads(loads) or [None])
    window = opt.parse_range(gantt, "--gantt")
    workloads = _Workloads(trace, machines, setup, bool(seeds))

    experiments: list[Experiment] = []

    def make(run: Run) -> Experiment:
        experiment = replace(setup, seed=run.seed).experiment(workloads.get(run), machines, run.policy)
        experiments.append(experiment)
        return experiment

    outcomes: list[Outcome] = []
    with progress_bar(f"{len(runs)} runs") as progress:
        for outcome in run_all(runs, make, processes or default_workers(), ray):
            outcomes.append(outcome)
            if progress is not None:
                progress(len(outcomes), len(runs))
    opt.tell([note for experiment in experiments for note in experiment.notes])
    rows = comparison_rows(outcomes)
    several = len(runs) > len(names)
    sums = aggregate(rows) if several else None
    if json_:
        opt.write_json([outcome.as_dict() for outcome in outcomes], json_)
    if json_ != "-":
        print_aggregates(sums, opt.console()) if sums is not None else print_comparison(rows, opt.console())
    if jobs_csv:
        _write_jobs(outcomes, Path(jobs_csv), several)
    if html:
        from cotenant.report.html import write_html

        opt.guarded_write(
            html,
            lambda: write_html(
                outcomes, Path(html), title=f"{len(names)} policies on {cluster}", command=_command(),
                rows=rows, aggregates=sums, window_s=window,
            ),
        )  # fmt: skip
        typer.echo(f"report: {html}", err=json_ == "-")


class _Workloads:
    """Workloads per (seed, load): a generator makes new ones, a log is stretched in time."""

    def __init__(self, trace: str, machines: Cluster, setup: Setup, reseed: bool) -> None:
        self._trace, self._machines, self._setup, self._reseed = trace, machines, setup, reseed
        self._made: dict[tuple[int | None, float | None], Workload] = {}

    def get(self, run: Run) -> Workload:
        from cotenant.sim.sweep import scale_load
        from cotenant.workload.generators import GENERATORS

        generated = self._trace.split(":", 1)[0] in GENERATORS
        key = (run.seed if generated and self._reseed else None, run.load)
        if key not in self._made:
            text = self._trace
            if generated:
                text = _with_params(text, seed=key[0], load=run.load)
            work = self._setup.workload(text, self._machines.gpus, quiet=bool(self._made))
            if not generated and run.load is not None:
                work = scale_load(work, self._machines.gpus, run.load)
            self._made[key] = work
        return self._made[key]


def _with_params(text: str, **changes: float | int | None) -> str:
    from cotenant.core.spec import Spec

    spec = Spec.parse(text)
    params = {**spec.params, **{key: str(value) for key, value in changes.items() if value is not None}}
    return str(Spec(spec.name, params))


def _seeds(text: str) -> list[int]:
    from cotenant.core.errors import InputError

    numbers: list[int] = []
    wrong = InputError(f"--seeds '{text}': write 0-4 or 1,5,7")
    for part in filter(None, text.split(",")):
        if re.fullmatch(r"\d+-\d+", part):
            first, last = (int(end) for end in part.split("-"))
            if first > last:
                raise wrong
            numbers += range(first, last + 1)
        elif part.isdigit():
            numbers.append(int(part))
        else:
            raise wrong
    return numbers


def _loads(text: str) -> list[float | None]:
    from cotenant.core.errors import InputError

    try:
        numbers: list[float | None] = [float(part) for part in filter(None, text.split(","))]
        if any(number is None or not 0 < number < opt.INFINITY for number in numbers):
            raise ValueError
    except ValueError:
        raise InputError(f"--loads '{text}': write positive numbers such as 0.7,1.0,1.3") from None
    return numbers


def _write_jobs(outcomes: list[Outcome], folder: Path, several: bool) -> None:
    from cotenant.report.jobs_csv import write_jobs_csv

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for outcome in outcomes:
            name = re.sub(r"[^\w.=+-]+", "_", outcome.policy).strip("_")
            if several:
                name += f"-seed{outcome.summary['seed']}"
                name += f"-load{outcome.summary['load']}" if "load" in outcome.summary else ""
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
    return "cotenant " + " ".join(words)
