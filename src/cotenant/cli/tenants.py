"""`cotenant tenants`: who shares the cluster, and what each may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

if TYPE_CHECKING:
    from cotenant.cli.text_table import TextTable

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Who shares the cluster: show, add, set, remove tenants."
)

_EXAMPLE = "guaranteed=16 borrow=8 limits.gpus=4 admins=ada,bob"
Name = Annotated[str, typer.Argument(help="Name of the tenant.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(help=f"As in the cluster file (docs/tenants.md), e.g. {_EXAMPLE}.", metavar="KEY=VALUE"),
]


@app.command()
def show(json_: opt.Plain = False) -> None:
    """List tenants: what each is guaranteed, its limits, and what it holds now."""
    with remote.connected() as client:
        found = client.tenants()
    if json_:
        remote.print_json(found)
        return
    remote.print_table(tenant_table(found["tenants"]))
    share, who = found["fair_share"], found["changed_by"]
    half = remote.span(share["half_life_s"]) if share["half_life_s"] is not None else "none: only now counts"
    typer.echo(
        f"half-life of past use {half}, borrowed GPUs are kept at least {remote.span(share['min_run_s'])}, "
        f"reserved for a gang after {remote.span(share['reserve_after_s'])}"
        + (f"; changed {remote.clock(found['changed_s'])} by {remote.clean(who)}" if who else "")
    )


@app.command()
def add(
    name: Name,
    fields: Fields = None,
    parent: Annotated[str, typer.Option(help="The tenant above it; else it is at the top.")] = "",
    json_: opt.Plain = False,
) -> None:
    """Add a tenant, e.g. `cotenant tenants add nlp --parent research guaranteed=8`."""
    given = read_fields(fields or ())
    with remote.connected() as client:
        _tell(client.add_tenant(name, parent, given), json_)


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="Name of the tenant; none with --file or --fair-share.")] = "",
    fields: Fields = None,
    parent: Annotated[str | None, typer.Option(help="Move it below this tenant.")] = None,
    file: Annotated[str, typer.Option(help="Take the tenants of this cluster file, and what it says of nodes.")] = "",
    fair_share: Annotated[
        str, typer.Option(help="How past use counts, e.g. half_life=7d,min_run=60,reserve_after=600.")
    ] = "",
    json_: opt.Plain = False,
) -> None:
    """Change a tenant, e.g. `cotenant tenants set vision guaranteed=16 borrow=8`; `KEY=none`: as by default."""
    from cotenant.core.errors import InputError

    given = read_fields(fields or ())
    if parent is not None:
        given["parent"] = parent
    if sum(map(bool, (name, file, fair_share))) != 1 or bool(name) != bool(given):
        raise InputError("give a tenant and KEY=VALUE, e.g. vision guaranteed=16; or --file FILE; or --fair-share ...")
    if file:
        from cotenant.workload.cluster_file import load_tenants

        cluster = load_tenants(file)
    share = read_fields(fair_share.split(",")) if fair_share else {}
    with remote.connected() as client:
        if file:
            _tell(client.take_cluster(cluster), json_)
        else:
            _tell(client.set_fair_share(share) if share else client.set_tenant(name, given), json_)


@app.command()
def remove(name: Name, json_: opt.Plain = False) -> None:
    """Remove a tenant that has neither children nor unfinished jobs."""
    with remote.connected() as client:
        _tell(client.remove_tenant(name), json_)


def _tell(found: dict[str, Any], json_: bool) -> None:
    for line in found["unmatched"]:
        typer.echo(f"cotenant: {remote.clean(line)}", err=True)
    remote.print_json(found) if json_ else typer.echo(remote.clean(found["done"]))


def tenant_table(rows: list[dict[str, Any]]) -> TextTable:
    """Tenants in one line each, children below their parents."""
    depth = {"": -1}
    shown = []
    for row in rows:
        depth[row["name"]] = depth.get(row["parent"], -1) + 1
        limits = ",".join(f"{key}={value:g}" for key, value in row["limits"].items() if value is not None)
        shown.append((
            "  " * depth[row["name"]] + row["name"] + ("" if row["declared"] else " (not declared)"), row["guaranteed"],
            f"{row['weight']:g}", _most(row["ceiling"]), _most(row["lend"]), _most(row["borrow"]), row["gpus_held"],
            row["running_jobs"], row["waiting_jobs"], limits, ",".join(row["admins"]),
        ))  # fmt: skip
    numbers = ("guaranteed", "weight", "ceiling", "lends", "borrows", "holds", "running", "waiting")
    return remote.table(("tenant", *numbers, "limits per user", "admins"), shown, right=numbers)


def _most(value: int | None) -> str:
    return "-" if value is None else str(value)


def read_fields(texts: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """`guaranteed=16 limits.gpus=4 admins=ada,bob lend=none` as in a cluster file."""
    from cotenant.core.errors import InputError

    given: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise InputError(f"'{text}' is not KEY=VALUE, e.g. {_EXAMPLE}")
        field, dot, part = key.partition(".")
        if dot:
            given[field] = {**(given[field] if isinstance(given.get(field), dict) else {}), part: _value(value)}
        else:
            given[key] = value.split(",") if key == "admins" and value != "none" else _value(value)
    return given


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
