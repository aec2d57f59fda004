"""`cotenant whatif`: what the live jobs would do under another policy."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote
from cotenant.cli.progress import progress_bar


def whatif(
    policy: Annotated[
        str,
        typer.Option(
            help="Policies to try, separated by commas.", metavar="P[,P2]", autocompletion=remote.complete_policies
        ),
    ],
    json_: opt.Plain = False,
) -> None:
    """Play the live state forward in the simulator: per job, the expected finish now and under each policy."""
    from cotenant.core.errors import InputError
    from cotenant.core.spec import split_specs

    names = split_specs(policy)
    if not names:
        raise InputError(f"--policy '{policy}': write names such as srtf,tiresias-l")
    with remote.connected() as client, progress_bar("played forward") as bar:
        found = client.whatif(names, lambda seen: bar(seen["done"], seen["jobs"]) if bar else None)
    if json_:
        remote.print_json(found)
        return
    columns = list(dict.fromkeys([found["now"], *names]))
    now_s = found.get("at_s", 0.0)
    left = [{name: job[name] - now_s for name in columns if job.get(name) is not None} for job in found["jobs"]]
    rows = [(job["id"], *(_cell(job, name, now_s) for name in columns)) for job in found["jobs"]]
    means = []
    for name in columns:
        known = [row[name] for row in left if name in row]
        means.append(remote.span(sum(known) / len(known)) if known else "-")
    heads = ["job", f"{columns[0]} (now)", *columns[1:]]
    remote.print_table(remote.table(heads, [*rows, ("mean", *means)], right=heads[1:]))
    typer.echo("expected finish, from now (and the interval in which it lies 9 times of 10)")
    assumed = found.get("assumed", [])
    if assumed:
        few = ", ".join(assumed[:5]) + (f" and {len(assumed) - 5} more" if len(assumed) > 5 else "")
        how_long = remote.span(found["assumed_s"])
        typer.echo(f"nobody said how long {few} takes: assumed are {how_long}, or twice what it ran (see --expected)")
    for name in found.get("partial", ()):
        missing = sum(job.get(name) is None for job in found["jobs"])
        typer.echo(f"note: time was up for {name}: {missing} jobs have no finish yet", err=True)


def _cell(job: dict[str, Any], policy: str, now_s: float) -> str:
    """What is left until the end of a job, with its interval."""
    if job.get(policy) is None:
        return "-"
    told = job.get("forecasts", {}).get(policy, {})
    limits = (told.get(name) for name in ("expected_end_low_s", "expected_end_high_s"))
    return remote.spans(job[policy] - now_s, *(None if limit_s is None else limit_s - now_s for limit_s in limits))
