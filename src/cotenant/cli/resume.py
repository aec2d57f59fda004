"""`cotenant resume`: lets held jobs go on."""

from __future__ import annotations

from cotenant.cli import options as opt
from cotenant.cli import remote


def resume(jobs: remote.Jobs, json_: opt.Plain = False) -> None:
    """Let held jobs go on."""
    remote.change("resume", remote.which(jobs), json_)
