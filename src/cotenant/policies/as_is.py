"""What happened, as the log tells it."""

from __future__ import annotations

from cotenant.core.errors import InputError
from cotenant.core.state import Rule
from cotenant.policies.base import Context, Policy


class AsIs(Policy):
    """Every job starts and ends when the log says it did; nothing is decided (`sim/as_is.py`)."""

    name = "as-is"
    source = "the log"

    def rule(self, context: Context) -> Rule:
        """There is none."""
        raise InputError(
            "policy 'as-is' replays what a log says happened: it can be simulated and compared, not served"
        )
