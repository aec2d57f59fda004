"""`cotenant resubmit`: new jobs like old ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def resubmit(
    jobs: remote.Jobs,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE as in the job file, e.g. gpus=2; repeatable.")
    ] = None,
    json_: opt.Plain = False,
) -> None:
    """Submit jobs again as they were, but for what --set changes; of an array those named. Prints the new ids."""
    import yaml

    from cotenant.core.errors import InputError

    changes: dict[str, Any] = {}
    for change in set_ or []:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise InputError(f"--set '{change}' is not KEY=VALUE")
        try:
            changes[key] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError:
            changes[key] = value
    with remote.connected() as client:
        ids = client.resubmit(remote.which(jobs), changes)
    if json_:
        remote.print_json({"ids": ids})
        return
    for group in ids:
        for id_ in group:
            typer.echo(id_)
