"""`cotenant profiles`: bring in a table of one's own, and predict models that have not run."""

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
    file: Annotated[
        str,
        typer.Argument(help="CSV: model_a,model_b,a_ratio,b_ratio[,a_gib,b_gib,gpu_gib] or model,busy[,gib,gpu_gib]."),
    ],
    out: Annotated[str, typer.Option(help="Profile file to write, for --profile.")] = "pairs.json",
) -> None:
    """Check a table of pairs, or of models alone, and write it as a profile."""
    from pathlib import Path

    from cotenant.workload.profiles.own_pairs import read_pairs

    opt.check_targets(out)
    table = read_pairs(Path(file))
    opt.write_json(table, out)
    models = {name for pair in table["pairs"] for name in pair[:2]} | set(table.get("busy", ()))
    typer.echo(f"{len(table['pairs'])} pairs of {len(models)} models written to {out}; use --profile {out}")


@app.command()
def predict(
    file: Annotated[str, typer.Argument(help="ONNX file of the model.")],
    batch: Annotated[int, typer.Option(help="Batch size per GPU; 0: the file's own, or 1.")] = 0,
    dim: Annotated[list[str] | None, typer.Option(help="Size of another open dimension: seq=128.")] = None,
    json_: opt.Plain = False,
) -> None:
    """Predict step time, memory and utilisation of a model on an H200 from its ONNX file."""
    from dataclasses import asdict

    from cotenant.beliefs.predictor import of_onnx
    from cotenant.beliefs.predictor import predict as predict_graph
    from cotenant.core.errors import InputError

    sizes = {}
    for text in dim or ():
        name, eq, size = text.partition("=")
        if not (name and eq and size.isdigit() and int(size)):
            raise InputError(f"--dim {text}: write NAME=SIZE, for example seq=128")
        sizes[name] = int(size)
    if batch < 0:
        raise InputError(f"--batch {batch} must be at least 1, or 0 for the file's own")
    graph = of_onnx(file, batch or None, sizes)
    found = predict_graph(graph)
    if json_:
        opt.write_json({**asdict(graph), **asdict(found)}, "-")
        return
    typer.echo(
        f"{graph.operators} operators that multiply, {graph.flops:.3g} FLOPs per step of batch {graph.batch},"
        f" {graph.parameters:,.0f} parameters"
    )
    typer.echo(
        f"on an H200: about {1000 * found.step_s:.3g} ms per step, {found.memory_mib:,.0f} MiB,"
        f" {found.utilisation:.0%} busy (see `cotenant estimator evaluate` for how far off that may be)"
    )


@app.command()
def evaluate(json_: opt.Plain = False) -> None:
    """Print the error of predicted step time, memory and utilisation, one model left out at a time."""
    from cotenant.cli.estimator import print_predictor

    print_predictor(json_)
