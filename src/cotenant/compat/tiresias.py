"""Tiresias' released simulator (NSDI'19): three queues with limits of its own, which the policy knows."""

from __future__ import annotations

from cotenant.compat.base import System


class TiresiasQuirks(System):
    """Named alone, it changes the limits of the queues."""
