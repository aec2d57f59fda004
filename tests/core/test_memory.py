"""GPU memory that gives: what is granted to whom, and what is refused (TENSILE's check in numbers)."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.declared import BUS_GIB_S, Oversubscription, parse_speeds
from cotenant.core.errors import InputError
from cotenant.core.memory import grant, refusal
from cotenant.policies.bsbf.squeezing import granted_beside


def test_two_jobs_of_16_and_10_on_24_gib() -> None:
    """Hard: 32 > 24. Compressible: 20 <= 24, and the 4 left over go by 6 : 6."""
    hard = grant([16, 16], [16, 16], 24)
    soft = grant([16, 16], [10, 10], 24, cap=1.5)
    assert hard is None
    assert soft is not None
    assert soft.tolist() == [12, 12]
    assert grant([16, 16], [10, 10], 24, cap=32 / 24) is not None
    assert grant([16, 16], [10, 10], 24, cap=1.25) is None
    assert refusal([16, 16], [10, 10], 24, cap=1.25) == "their peaks are 1.33 times the GPU's 24.0 GiB; 1.25 is most"


def test_the_bus_carries_what_is_missing_out_and_back() -> None:
    """4 GiB are missing of each; at two steps per second that is 2 x 4 x 2 twice: 32 GiB/s."""
    steps = [2.0, 2.0]
    assert grant([16, 16], [10, 10], 24, 1.5, 32.0, steps) is not None
    assert grant([16, 16], [10, 10], 24, 1.5, 31.9, steps) is None
    assert "32.0 GiB/s over a bus of 31.9" in refusal([16, 16], [10, 10], 24, 1.5, 31.9, steps)
    assert grant([12, 12], [10, 10], 24, 1.5, 1e-9, steps) is not None  # nothing is missing, so nothing is sent


def test_the_rest_goes_by_what_each_gives() -> None:
    granted = grant([20, 10, 4], [8, 7, 4], 24)
    assert granted is not None
    assert granted.tolist() == [8 + 5 * 12 / 15, 7 + 5 * 3 / 15, 4]
    alone = grant([30], [10], 24)
    assert alone is not None
    assert alone.tolist() == [24]


def test_grants_fill_the_gpu_and_keep_within_least_and_peak() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        peaks = rng.uniform(1, 20, rng.integers(1, 5))
        leasts = peaks * rng.uniform(0.2, 1, len(peaks))
        granted = grant(peaks, leasts, 24.0)
        assert (granted is None) == bool(leasts.sum() > 24)
        if granted is not None:
            assert (leasts - 1e-9 <= granted).all()
            assert (granted <= peaks + 1e-9).all()
            assert granted.sum() == pytest.approx(min(peaks.sum(), 24.0))
            if len(peaks) == 2:
                one = granted_beside(peaks[0], leasts[0], peaks[1], leasts[1], 24.0)
                assert one == pytest.approx(granted[0])


def test_what_people_write() -> None:
    assert Oversubscription.parse("") is None
    assert Oversubscription.parse("1.5") == Oversubscription(1.5, BUS_GIB_S)
    assert Oversubscription.parse("1.5@12") == Oversubscription(1.5, 12.0)
    for text in ("0.9", "x", "1.5@0", "1@2@3", "inf"):
        with pytest.raises(InputError, match="--oversubscribe"):
            Oversubscription.parse(text)
    assert parse_speeds([("13", "0.9"), ("10", "0.6")], "here") == ((10.0, 0.6), (13.0, 0.9))
    for pairs in ([("10",)], [("10", "1.2")], [("10", "0.9"), ("12", "0.5")], []):
        with pytest.raises(InputError, match="here: write pairs"):
            parse_speeds(pairs, "here")
