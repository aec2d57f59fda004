"""Speeds on one GPU type against another, from jobs that have run on both."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles
from cotenant.beliefs.type_rates import TypeRates

TYPES = ("k80", "p100", "v100")
KIND = ("resnet", 1)
EVEN = np.ones((3, 2))


def test_a_job_on_two_types_says_how_much_faster_one_is() -> None:
    rates = TypeRates()
    rates.learn(KIND, "1", "k80", 0.4)
    assert (rates.speeds(KIND, TYPES, EVEN) == EVEN).all(), "one type alone says nothing"
    rates.learn(KIND, "1", "v100", 0.1)
    found = rates.speeds(KIND, TYPES, EVEN)
    # one job against a profile that counts for a quarter of one: log 4 * 1 / (1 + 0.25 / 2), around the profile's mean
    assert found[2, 0] / found[0, 0] == pytest.approx(4 ** (1 / 1.125))
    assert found[2, 0] * found[0, 0] == pytest.approx(1.0)
    assert found[1].tolist() == [1.0, 1.0], "nobody ran there"
    assert (found[:, 0] == found[:, 1]).all()
    assert (rates.speeds(("bert", 1), TYPES, EVEN) == EVEN).all()


def test_jobs_of_other_batches_are_not_compared_with_each_other() -> None:
    rates = TypeRates()
    rates.learn(KIND, "large batch", "v100", 0.8)
    rates.learn(KIND, "small batch", "k80", 0.1)
    assert rates.changes == 0


def test_many_jobs_outweigh_the_profile_and_survive_a_restart() -> None:
    rates, wrong = TypeRates(), np.array([[1.0, 1.0], [1.0, 1.0], [0.5, 0.25]])
    for job in range(20):
        rates.learn(KIND, str(job), "k80", 0.3)
        rates.learn(KIND, str(job), "v100", 0.1)
    kept = TypeRates()
    kept.recall(json.loads(json.dumps(rates.keeps())))
    for one in (rates, kept):
        found = one.speeds(KIND, TYPES, wrong)
        assert found[2, 0] / found[0, 0] == pytest.approx(3.0, rel=0.02)
        assert found[2, 1] / found[2, 0] == pytest.approx(0.5), "what spreading costs is the profile's"
    assert kept.copy().keeps() == kept.keeps()


def test_a_type_on_which_a_kind_does_not_run_stays_so() -> None:
    rates, profiles = TypeRates(), LiveProfiles("none", TYPES, {"k80": 12.0})
    large = LiveKind(KIND, mem_gib=24.0)
    profiles.kind_of(large)
    rates.learn(KIND, "1", "v100", 0.1)
    rates.learn(KIND, "1", "k80", 0.2)
    assert profiles.learn(rates)
    assert not profiles.learn(rates), "nothing new"
    assert profiles.speed[0, :, 0].tolist() == [0.0, 1.0, pytest.approx(2 ** (0.5 / 1.125))]
    assert profiles.of(large, "v100") == profiles.speed[0, 2, 0]
