"""`cotenant share`: what each tenant is entitled to, holds, has borrowed and lent, as with Slurm's `sshare`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def share(
    tenant: Annotated[str, typer.Option(help="Only this tenant and those below it, with the arithmetic.")] = "",
    arithmetic: Annotated[
        bool, typer.Option("--arithmetic", help="Also the sum of the next decision, in words.")
    ] = False,
    json_: opt.Plain = False,
) -> None:
    """Show the tree of tenants: guaranteed, entitled, used now and before, borrowed from whom, lent to whom."""
    with remote.connected() as client:
        found = client.share(tenant)
    if json_:
        remote.print_json(found)
        return
    remote.print_table(remote.table(_HEADS, [_cells(row) for row in found["tenants"]], right=_HEADS[1:]))
    half_life_s = found["half_life_s"]
    past = f"past use counts half after {remote.span(half_life_s)}" if half_life_s is not None else "only now counts"
    typer.echo(f"\n{found['gpus']} GPUs under {remote.clean(found['policy'])}, {found['idle']} idle; {past}")
    if not found["declared"]:
        typer.echo("nobody is guaranteed anything: `cotenant tenants add` or `serve --cluster FILE` declares tenants")
    if tenant or arithmetic:
        for row in found["tenants"]:
            typer.echo(f"\n{remote.clean(row['arithmetic'])}")


_HEADS = (
    "tenant", "guaranteed", "entitled", "ceiling", "weight", "used", "past", "borrowed", "lent", "waiting", "limit",
    "ratio",
)  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        "  " * row["depth"] + row["name"], row["guaranteed"], f"{row['entitled']:.1f}", _count(row["ceiling"]),
        f"{row['weight']:g}", row["used"], f"{row['past_use']:.1f}", _with(row["borrowed"], row["borrowed_from"]),
        _with(row["lent"], row["lent_to"]), row["waiting"], _count(row["limit"]), f"{row['ratio']:.2f}",
    )  # fmt: skip


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _with(gpus: int, whom: dict[str, int]) -> str:
    """`4 (nlp)`, `5 (nlp 3, speech 2)`."""
    if not whom:
        return str(gpus)
    parts = [name if len(whom) == 1 and count == gpus else f"{name} {count}" for name, count in whom.items()]
    return f"{gpus} ({', '.join(parts)})"
