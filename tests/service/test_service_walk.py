"""Random walks of a live service through all its policies; see `service_walk`."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest
from service_walk import POLICIES, Walk

import effort
from cotenant.policies import registry

NAMED = ("ones", "ones-goodput", "optimus", "sjf-bsbf", "sjf-ffs", "antman", "horus", "horus+", "gandiva", "chronus")
PLANS = tuple(policy for policy in POLICIES if policy.split(":")[0] in NAMED)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "known_policies", functools.cache(registry.known_policies))


@pytest.mark.parametrize("seed", effort.first(3, [*range(8), 14, 23, 46, 243, 276]))
def test_rules_hold_whatever_happens(tmp_path: Path, seed: int) -> None:
    Walk(tmp_path, seed).go(60)


@pytest.mark.slow
def test_rules_hold_under_plans(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(6):
        walk = Walk(tmp_path / str(seed), seed, PLANS)
        walk.go(40)
        seen += walk.seen
    assert min(seen[what] for what in ("shared", "suspended", "crashed")) > 0, "or the walks show nothing"
