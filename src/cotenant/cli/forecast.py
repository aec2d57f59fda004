"""`cotenant forecast evaluate`: how right forecasts of jobs' ends were."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

app = typer.Typer(help="Look at forecasts of jobs' ends.", no_args_is_help=True, rich_markup_mode=None)
_WHEN = {"submit": "at submission", "start": "at start", "half": "half-way"}


@app.callback()
def _forecast() -> None:
    """Look at forecasts of jobs' ends."""


@app.command()
def evaluate(
    plot: Annotated[str, typer.Option(help="Also draw it, into this HTML file.", metavar="FILE.html")] = "",
    home: Annotated[str, typer.Option(help="Of a service that does not run: read its journal there.")] = "",
    db: Annotated[str, typer.Option(help="With --home: the journal, as in `serve --db`; else the file there.")] = "",
    json_: opt.Plain = False,
) -> None:
    """Compare what was foretold of jobs at submission, at start and half-way with when they ended."""
    found = _from_journal(Path(home).expanduser(), db) if home else _from_service()
    if plot:
        from cotenant.report.forecasts import write_page

        write_page(found, plot)
    if json_:
        remote.print_json(found)
        return
    if not found["errors"]:
        typer.echo("no job has ended yet of which something was foretold", err=True)
        return
    _print(found)
    if plot:
        typer.echo(f"drawn in {plot}")


def _from_service() -> dict[str, Any]:
    with remote.connected() as client:
        return client.evaluation()


def _from_journal(home: Path, db: str) -> dict[str, Any]:
    """By what the journal of a service says that is not running."""
    from cotenant.core.errors import InputError
    from cotenant.journal import open_journal
    from cotenant.service import home as homes
    from cotenant.service.forecasts.evaluate import evaluate as evaluated
    from cotenant.service.forecasts.evaluate import points_of
    from cotenant.service.store.store import read_book

    if not db and not (home / "journal.db").is_file():
        raise InputError(f"--home '{home}': there is no journal.db: give the home of a service, or --db")
    held = homes.hold(home)
    try:
        with open_journal(db or str(home / "journal.db")) as journal:
            book = read_book(journal)
    finally:
        held.release()
    return evaluated(points_of(book.jobs.values()), book.calibration.scales)


def _print(found: dict[str, Any]) -> None:
    rows = [
        (_WHEN[row["at"]], row["policy"], row["forecasts"], f"{row['error_s']:+.1f} s", f"{row['relative']:.1%}",
         f"{row['bias']:+.1%}", f"{row['inside']:.0%}", f"{row['pinball_s']:.2f} s")
        for row in found["errors"]
    ]  # fmt: skip
    heads = ("foretold", "policy", "forecasts", "error", "relative", "bias", "in interval", "pinball")
    remote.print_table(remote.table(heads, rows, right=heads[2:]))
    levels = list(dict.fromkeys(row["quantile"] for row in found["calibration"]))
    below = {(row["at"], row["quantile"]): row["below"] for row in found["calibration"]}
    moments = list(dict.fromkeys(row["at"] for row in found["calibration"]))
    table = [(_WHEN[at], *(f"{below[at, level]:.0%}" for level in levels)) for at in moments]
    columns = ("ended before", *(f"{level:.0%}" for level in levels))
    typer.echo()
    remote.print_table(remote.table(columns, table, right=columns[1:]))
    widened = ", ".join(f"{found['scales'][at]:.2f} {_WHEN[at]}" for at in moments)
    typer.echo(f"\nintervals are now stretched by {widened}")
