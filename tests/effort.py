"""How much a run of the tests may cost: `make test` asks for the whole, `make fast` for a quick look at everything."""

from __future__ import annotations

# Tests that play every policy do so under these in a quick run, one of each kind.
POLICIES = {"fifo", "srtf", "tiresias-l", "gavel", "chronus", "sjf-bsbf", "ones-goodput", "muri-s"}
WHOLE = [False]  # set by conftest.py before any test module is read


def examples(whole: int) -> int:
    """How many random cases to try, of as many as the whole suite tries."""
    return whole if WHOLE[0] else max(3, whole // 5)
