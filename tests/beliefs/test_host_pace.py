"""How fast a host is now: starts that were seen tell of all that wait for it."""

from __future__ import annotations

import math

import pytest

from cotenant.beliefs.host_pace import SPREAD, HostPace, host_pace


def test_without_any_start_nothing_is_known_but_how_hosts_vary() -> None:
    assert host_pace([]) == HostPace(0.0, SPREAD)


def test_starts_that_are_longer_all_alike_are_the_host() -> None:
    """Golden: 1 / 0.07^2 = 204.08, each start counts 1 / 0.1^2 = 100; eight of +20 % are 800 / 1004.08 of ln 1.2."""
    found = host_pace([math.log(1.2)] * 8)
    assert found.shift == pytest.approx(0.79675 * math.log(1.2), abs=1e-5)
    assert found.spread == pytest.approx(1004.08**-0.5, abs=1e-5)
    one = host_pace([math.log(1.2)])
    assert 0 < one.shift < found.shift
    assert found.spread < one.spread < SPREAD


def test_a_start_from_cold_files_says_nothing_of_the_host() -> None:
    assert host_pace([math.log(3.0), -math.log(3.0)]) == host_pace([])
    assert host_pace([0.1, math.log(3.0)]) == host_pace([0.1])
