"""`cotenant requeue`: stops jobs and lets them wait again."""

from __future__ import annotations

from cotenant.cli import options as opt
from cotenant.cli import remote


def requeue(jobs: remote.Jobs, json_: opt.Plain = False) -> None:
    """Stop jobs and let them wait again; they go on from their last checkpoint."""
    remote.change("requeue", remote.which(jobs), json_)
