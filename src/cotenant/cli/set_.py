"""`cotenant set`: change a job that has not ended."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote

KEYS = ("priority", "deadline", "max_runtime", "retries", "name", "expected", "gpus")
_WHOLE = ("priority", "retries", "gpus")


def set_(
    job: Annotated[str, typer.Argument(help=remote.MEANT, metavar="JOB", autocompletion=remote.complete_jobs)],
    changes: Annotated[list[str], typer.Argument(help=f"One of {', '.join(KEYS)}.", metavar="KEY=VALUE...")],
    json_: opt.Plain = False,
) -> None:
    """Change a job that has not ended, e.g. `cotenant set 12 priority=5 deadline=2h`."""
    from cotenant.core.errors import InputError, unknown

    given: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not value:
            raise InputError(f"'{change}' is not KEY=VALUE")
        if key not in KEYS:
            raise unknown("field", key, KEYS)
        if key in _WHOLE:
            try:
                given[key] = int(value)
            except ValueError:
                raise InputError(f"{key}={value}: write a whole number") from None
        else:
            given[key] = value
    text = ", ".join(f"{key} {value}" for key, value in given.items())
    remote.change("set", remote.which([job]), json_, lambda info: f"{info.id}: {text}", changes=given)
