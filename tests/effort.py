"""How much a run of the tests may cost: `make test` asks for the whole, `make fast` for a quick look at everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

# Tests that play every policy do so under these in a quick run, one of each kind.
POLICIES = {"fifo", "srtf", "tiresias-l", "gavel", "chronus", "sjf-bsbf", "ones-goodput", "muri-s"}
PLACEMENT = "consolidated"  # and where they are also played under every rule of placement, under this one
WHOLE = [False]  # set by conftest.py before any test module is read


def examples(whole: int) -> int:
    """How many random cases to try, of as many as the whole suite tries."""
    return whole if WHOLE[0] else min(whole, max(3, whole // 5))


def some(whole: Sequence[T]) -> Sequence[T]:
    """Of so many cases: every fifth in a quick run."""
    return whole[:: 1 if WHOLE[0] else 5]


def first(count: int, whole: Iterable[object]) -> list[object]:
    """For `parametrize`: these first ones in every run, the others in the whole suite."""
    return [one if at < count else pytest.param(one, marks=pytest.mark.slow) for at, one in enumerate(whole)]
