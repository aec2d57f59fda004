"""`cotenant profiles`: bring in a table of one's own, and judge the predictor of models that have not run."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt

app = typer.Typer(help="Look at what is known of models.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _profiles() -> None:
    """Look at what is known of models."""


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="CSV with model_a,model_b,a_ratio,b_ratio[,a_gib,b_gib,gpu_gib].")],
    out: Annotated[str, typer.Option(help="Profile file to write, for --profile.")] = "pairs.json",
) -> None:
    """Check a table of pairs and write it as a profile."""
    from pathlib import Path

    from cotenant.workload.profiles.own_pairs import read_pairs

    opt.check_targets(out)
    table = read_pairs(Path(file))
    opt.write_json(table, out)
    models = {name for pair in table["pairs"] for name in pair[:2]}
    typer.echo(f"{len(table['pairs'])} pairs of {len(models)} models written to {out}; use --profile {out}")


@app.command()
def evaluate(json_: opt.Plain = False) -> None:
    """Print the error of predicted step time and memory, one model left out at a time, beside that of the mean."""
    from cotenant.workload.predictor import evaluate as evaluate_models

    rows = evaluate_models()
    if json_:
        opt.write_json(rows, "-")
        return
    typer.echo(f"{'predicts':12} {'RMSLE':>8} {'of the mean':>12}")
    for row in rows:
        typer.echo(f"{row['predicts']:12} {row['rmsle']:8.3f} {row['rmsle_of_mean']:12.3f}")
