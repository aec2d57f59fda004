"""`cotenant cancel`: cancels jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.cli import options as opt
from cotenant.cli import remote


def cancel(
    jobs: remote.SomeJobs = None,
    name: remote.Names = None,
    state: remote.States = "",
    user: remote.Users = None,
    tenant: remote.Tenants = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="All unfinished jobs that you may cancel.")] = False,
    force: Annotated[bool, typer.Option("--force", help="SIGKILL at once: no time to save or clean up.")] = False,
    json_: opt.Plain = False,
) -> None:
    """Ask jobs to end for good: those named, or all that pass the filters. Exit code 2 if one could not be."""
    from cotenant.core.errors import InputError
    from cotenant.service.facade import EVERY

    which = remote.which(jobs, state, name, user, tenant)
    if which == EVERY and not all_:
        raise InputError("name jobs, give --name, --state, --user or --tenant, or --all for all of them")
    remote.change("cancel", which, json_, every=all_, force=force)
