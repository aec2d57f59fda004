"""`cotenant audit`: who did what."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def audit(
    since: Annotated[str, typer.Option(help="So long ago, e.g. 2h, 7d; without: as far as it is kept.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 1000,
    json_: opt.Plain = False,
) -> None:
    """Show every request that changed something, and every such one that was refused (admin)."""
    import time

    from cotenant.core.jobspec import read_seconds

    since_s = max(0.0, time.time() - read_seconds(since, "since", "audit")) if since else 0.0
    with remote.connected() as client:
        found = client.audit(since_s=since_s, limit=limit)
    if json_:
        remote.print_json(found)
        return
    rows = [
        (remote.clock(row["time_s"]), row["who"] or "(stranger)", row["role"], row["tenant"], row["from"],
         f"{row['method']} {row['path']}", row["status"], _more(row))
        for row in found
    ]  # fmt: skip
    columns = ("time", "who", "role", "tenant", "from", "what", "status", "note")
    remote.print_table(remote.table(columns, rows, right=("status",)))


def _more(row: dict[str, object]) -> str:
    refused = row.get("refused_before")
    return "; ".join(filter(None, (str(row.get("note", "")), f"{refused} more refused before" if refused else "")))
