"""The rolling estimate: golden examples of the specification, and what counts as a like name."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.beliefs.estimators import estimate
from cotenant.beliefs.prediction.gbdt import mix
from cotenant.beliefs.prediction.names import MOST_KINDS, NO_NAME, NameKinds
from cotenant.beliefs.prediction.rolling import Rolling
from cotenant.core.workload import Codes, Workload, make_workload

A, B, NEW = 0, 1, 2


def _finished(decay: float) -> tuple[Rolling, NameKinds]:
    kinds, past = NameKinds(), Rolling(decay)
    for user, name, gpus, seconds in (
        (A, "train_a", 2, 100.0),
        (A, "train_a", 2, 300.0),
        (A, "eval", 4, 1000.0),
        (B, "other", 2, 50.0),
    ):
        past.add(user, kinds.kind(name), gpus, seconds)
    return past, kinds


def test_golden_rolling_estimates() -> None:
    past, kinds = _finished(0.5)
    unlike = kinds.kind("qqqqqqq")
    assert past.estimate(NEW, unlike, 2) == 150
    assert past.estimate(A, unlike, 2) == 200
    assert past.estimate(A, unlike, 4) == 1000
    assert past.estimate(A, kinds.kind("train_b"), 2) == pytest.approx(700 / 3)
    assert _finished(1.0)[0].estimate(A, kinds.kind("train_b"), 2) == 200
    # No job with as many GPUs: that condition is dropped.
    assert past.estimate(A, unlike, 16) == pytest.approx(1400 / 3)
    assert past.estimate(NEW, unlike, 16) == pytest.approx(1450 / 4)
    assert Rolling(prior_s=60).estimate(A, NO_NAME, 1) == 60


def test_golden_priorities() -> None:
    """Helios, lambda 0.1: J1 1980, J2 2240, J3 rolling only, 1800."""
    gpus = np.array([1, 8, 2])
    belief = mix(np.array([3600.0, 100, 900]), np.array([1800.0, 300, -50]), 0.1)
    np.testing.assert_allclose(gpus * belief, [1980, 2240, 1800])


def test_names() -> None:
    kinds = NameKinds()
    first = kinds.kind("train_resnet_2020")
    assert kinds.kind("") == kinds.kind("  ") == NO_NAME
    assert kinds.kind("train_resnet_7") == kinds.kind("Train_ResNets_8") == first
    assert kinds.kind("eval") != first
    letters = [f"{chr(97 + i % 26)}{chr(97 + i // 26)}" * 3 for i in range(600)]
    assert max(kinds.kind(name) for name in letters) == MOST_KINDS - 1


def _work() -> Workload:
    return make_workload(
        "x",
        np.array([0.0, 5, 20, 30, 31, 200]),
        np.array([1, 2, 1, 2, 1, 1]),
        np.array([10.0, 100, 30, 1, 4, 7]),
        user=Codes(np.array([0, 0, 0, 1, 1, 0]), ("a", "b")),
    )


def test_rolling_sees_only_the_finished_past() -> None:
    # Row 3, of a new user: everybody's row 0. Row 4 (31 s): row 3 ends at 31 s, not before, so everybody's row 0.
    np.testing.assert_allclose(estimate("rolling:prior=60", _work()), [60, 60, 10, 10, 10, 20])


def test_user_median() -> None:
    np.testing.assert_allclose(estimate("user-median:prior=60", _work()), [60, 60, 10, 10, 10, 30])
