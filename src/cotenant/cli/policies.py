"""`cotenant policies`: what there is to choose from."""

from __future__ import annotations

from typing import Any

import typer

from cotenant.cli import options as opt


def policies(json_: opt.Plain = False) -> None:
    """List policies, placements, allocators, estimators and generators with their sources and parameters."""
    from cotenant.allocation import ALLOCATORS
    from cotenant.beliefs.estimators import ESTIMATORS
    from cotenant.placement.modes import PLACEMENTS
    from cotenant.policies import known_policies
    from cotenant.policies.as_is import AsIs
    from cotenant.policies.base import Policy
    from cotenant.workload.generators import GENERATORS

    rows: list[dict[str, Any]] = []
    known: dict[str, type[Policy]] = {**known_policies(), AsIs.name: AsIs}
    for name, policy in known.items():
        about = {"name": name, "kind": "policy", "description": policy.description(), "source": policy.source}
        rows.append({**about, "preemptive": policy.preemptive, "parameters": _plain(policy.defaults)})
    for name, info in PLACEMENTS.items():
        about = {"name": name, "kind": "placement", "description": info.description, "source": info.source}
        rows.append({**about, "preemptive": None, "parameters": _plain(info.defaults)})
    for name, allocator in ALLOCATORS.items():
        about = {"name": name, "kind": "allocator", "description": allocator.description(), "source": allocator.source}
        rows.append({**about, "preemptive": None, "parameters": _plain({**allocator.common, **allocator.own})})
    for name, estimator in ESTIMATORS.items():
        about = {"name": name, "kind": "estimator", "description": estimator.about, "source": "-"}
        rows.append({**about, "preemptive": None, "parameters": _plain(estimator.defaults)})
    for name, generator in GENERATORS.items():
        about = {"name": name, "kind": "generator", "description": generator.about, "source": generator.source}
        rows.append({**about, "preemptive": None, "parameters": _plain(generator.defaults)})
    if json_:
        opt.write_json(rows, "-")
        return
    _print(rows)


def _plain(defaults: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    for kind in dict.fromkeys(row["kind"] for row in rows):
        where = "as TRACE" if kind == "generator" else f"--{kind}"
        table = Table(title=f"{kind} ({where} NAME or NAME:key=value,...)", title_justify="left", expand=False)
        for column in ("name", "what it does", "parameters", "source"):
            table.add_column(column, overflow="fold")
        for row in rows:
            if row["kind"] == kind:
                params = ", ".join(f"{key}={value}" for key, value in row["parameters"].items())
                name = row["name"] + (" (preempts)" if row["preemptive"] else "")
                table.add_row(name, row["description"], params, row["source"])
        opt.console().print(table)
    typer.echo("your own: --policy ./mine.py:MyPolicy (docs/policies.md)")
