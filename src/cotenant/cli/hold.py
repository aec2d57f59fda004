"""`cotenant hold`: holds jobs back."""

from __future__ import annotations

from cotenant.cli import options as opt
from cotenant.cli import remote


def hold(jobs: remote.Jobs, json_: opt.Plain = False) -> None:
    """Keep jobs from starting; running ones save and leave, or are suspended where they stand."""
    remote.change("hold", remote.which(jobs), json_)
