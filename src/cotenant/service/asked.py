"""Which jobs people mean when they ask something of several."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs are meant: all that pass every filter. An empty filter lets all pass.

    `jobs` are ids, arrays (`7`), elements (`7.3` or `7_3`), ranges (`7_[1-4,9]`) or names.
    """

    jobs: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


EVERY = Which()
