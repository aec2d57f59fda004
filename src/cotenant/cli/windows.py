"""Times for which nodes are shut, to all (`maintenance`) or to all but somebody (`reserve`): what both verbs share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import remote

if TYPE_CHECKING:
    from cotenant.service.node_windows import NodeWindow

Nodes = Annotated[
    list[str] | None, typer.Argument(help="Nodes.", metavar="[NODE]...", autocompletion=remote.complete_nodes)
]
All = Annotated[bool, typer.Option("--all", help="All nodes.")]
From = Annotated[str, typer.Option("--from", help="now, 22:30, '2026-12-01 22:30', or 'in 2h'.", metavar="TIME")]
For = Annotated[str, typer.Option("--for", help="How long: 90m, 2h, 1d.", metavar="LENGTH")]
Note = Annotated[str, typer.Option(help="For people to read.")]
Id = Annotated[str, typer.Argument(help="As `list` shows it.", metavar="ID")]


def add(
    kind: str, nodes: list[str] | None, all_: bool, from_: str, for_: str, json_: bool, gpus: int = 0, **more: str
) -> None:
    """Ask for one, and say how it was taken."""
    from cotenant.core.errors import InputError
    from cotenant.service.node_windows import NodeWindow

    if [bool(nodes), all_, bool(gpus)].count(True) != 1:
        raise InputError("name nodes, or give --all" + (" or --gpus N" if kind == "reservation" else ""))
    begins_s = moment_s(from_, time.time())
    window = NodeWindow("", kind, tuple(nodes or ()), begins_s, begins_s + length_s(for_), **more)
    with remote.connected() as client:
        made = client.add_window(window, gpus)
    remote.print_json(made) if json_ else typer.echo(f"{made.id}: {_line(made)}")


def length_s(text: str) -> float:
    """`90m`."""
    from cotenant.core.errors import InputError
    from cotenant.core.jobspec import changed_fields

    try:
        return float(changed_fields({"max_runtime": text}, "")["max_runtime_s"])
    except InputError:
        raise InputError(f"'{text}' is no length of time: write e.g. 90m, 2h, 1d") from None


def moment_s(text: str, now_s: float) -> float:
    """`now`, `22:30` (the next), `2026-12-01 22:30`, or `in 2h`; in local time."""
    from datetime import datetime, timedelta

    from cotenant.core.errors import InputError

    if text == "now":
        return now_s
    if text.startswith(("in ", "+")):
        return now_s + length_s(text.removeprefix("in").removeprefix("+").strip())
    now = datetime.fromtimestamp(now_s)
    try:
        if "-" in text:
            return datetime.fromisoformat(text).timestamp()
        at = datetime.fromisoformat(f"{now:%Y-%m-%d} {text}")
        return (at if at >= now else at + timedelta(days=1)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"--from '{text}': write now, 22:30, '2026-12-01 22:30' or 'in 2h'") from None


def _line(window: NodeWindow) -> str:
    owner = " and ".join(f"{what} {name}" for what, name in (("tenant", window.tenant), ("user", window.user)) if name)
    nodes = ", ".join(window.nodes) or "all nodes"
    return remote.clean(
        f"{window.kind} of {nodes}{f' for {owner}' if owner else ''} from {remote.clock(window.from_s)}"
        f" to {remote.clock(window.to_s)}{f' ({window.note})' if window.note else ''}"
    )


def list_(kind: str, json_: bool) -> None:
    """Those of one kind."""
    with remote.connected() as client:
        found = [window for window in client.windows() if window.kind == kind]
    if json_:
        remote.print_json(found)
        return
    for window in found:
        typer.echo(f"{window.id}: {_line(window)}")
    if not found:
        typer.echo(f"no {kind}", err=True)


def remove(window: str) -> None:
    """Before its time is over."""
    with remote.connected() as client:
        client.remove_window(window)
    typer.echo(f"{remote.clean(window)}: removed")
