"""Random walks of a live service with tenants; see `tenant_walk`."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest
from tenant_walk import STEADY, TenantWalk

from cotenant.policies import registry


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "known_policies", functools.cache(registry.known_policies))


def test_what_the_tree_promises_holds_whatever_happens(tmp_path: Path) -> None:
    TenantWalk(tmp_path, 3).go(50)


def test_only_what_is_borrowed_is_taken_back(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in (2, 5):
        walk = TenantWalk(tmp_path / str(seed), seed, STEADY)
        walk.go(40)
        seen += walk.seen
    assert min(seen[what] for what in ("reclaimed", "changed", "crashed")) > 0, "or the walks show nothing"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 30))
def test_the_same_in_longer_walks(tmp_path: Path, seed: int) -> None:
    TenantWalk(tmp_path, seed).go(80)
