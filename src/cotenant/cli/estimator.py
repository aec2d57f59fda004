"""`cotenant estimator evaluate`: how far beliefs are from the truth, of a log's durations or of models on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import options as opt

if TYPE_CHECKING:
    from cotenant.beliefs.prediction.evaluate import Errors

app = typer.Typer(help="Look at what policies believe.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _estimator() -> None:
    """Look at what policies believe."""


@app.command()
def evaluate(
    trace: Annotated[str, typer.Argument(help="Job log or generator; without one: the predictor of models.")] = "",
    estimator: Annotated[str, typer.Option(help="Estimator to judge (see `cotenant policies`).")] = "gbdt",
    seed: opt.Seed = 0,
    format_: opt.Format = "",
    json_: opt.Plain = False,
) -> None:
    """Print the error of an estimator on a log beside simple baselines; it learns from the log's past only.

    Without a log: the error of the predictor of step time, memory and utilisation, one measured model left out at a
    time, beside that of predicting the mean.
    """
    if not trace:
        print_predictor(json_)
        return
    from dataclasses import asdict

    from cotenant.beliefs.prediction.evaluate import evaluate as evaluate_on

    work = opt.load_workload(trace, None, format_=format_, quiet=json_)
    rows = evaluate_on(estimator, work, seed)
    if json_:
        opt.write_json([asdict(row) for row in rows], "-")
        return
    _print(rows, work.source)


def print_predictor(json_: bool) -> None:
    """Errors of the predictor of models that have not run."""
    from cotenant.beliefs.predictor import evaluate as evaluate_models

    rows = evaluate_models()
    if json_:
        opt.write_json(rows, "-")
        return
    heads = {"rmsle": "ridge (ships)", "rmsle_lightgbm": "LightGBM", "rmsle_of_mean": "the mean"}
    typer.echo("error of logarithms (RMSLE), one of eight models left out at a time:")
    typer.echo(f"{'predicts':12}" + "".join(f"{head:>15}" for head in heads.values()))
    for row in rows:
        cells = ("not installed" if row[name] is None else f"{row[name]:.3f}" for name in heads)
        typer.echo(f"{row['predicts']:12}" + "".join(f"{cell:>15}" for cell in cells))


def _print(rows: list[Errors], source: str) -> None:
    from rich.table import Table

    table = Table(title=f"beliefs about {rows[0].jobs:,} jobs of {source}", title_justify="left", expand=False)
    heads = ("MAPE", "median error", "log error", "rank corr.", "of GPU time", "within 2x", "wall s")
    table.add_column("estimator", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            row.estimator, f"{row.mape:,.0%}", f"{row.median_relative:,.0%}", f"{row.log_error:.3f}",
            f"{row.rank_correlation:.3f}", f"{row.gpu_time_rank_correlation:.3f}", f"{row.within_2x:.1%}",
            f"{row.wall_s:.2f}",
        )  # fmt: skip
    opt.console().print(table)
    if rows[0].trainings:
        typer.echo(f"trained {rows[0].trainings} times in {rows[0].training_s:.2f} s, each time on ended jobs only")
