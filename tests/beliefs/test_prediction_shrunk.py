"""Shrunk estimates: thin evidence says what is known anyway, much evidence speaks, and noise is switched off."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.beliefs.estimators import estimate, make_learner
from cotenant.beliefs.prediction.past import AskedJob
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload


def _log(own: float, jobs: int = 1500, users: int = 12) -> Workload:
    """Durations around 1000 s whose logarithms have a variance of 1, `own` of it between users."""
    draw = np.random.default_rng(7)
    user = draw.integers(0, users, jobs)
    logs = np.log(1000.0) + np.sqrt(own) * draw.standard_normal(users)[user]
    duration_s = np.exp(logs + np.sqrt(1 - own) * draw.standard_normal(jobs))
    names = tuple(f"u{at}" for at in range(users))
    return make_workload("x", np.arange(jobs) * 50.0, np.ones(jobs, np.int64), duration_s, user=Codes(user, names))


def test_what_users_repeat_is_learned_and_noise_is_not() -> None:
    late = slice(500, None)
    for own, least, most in ((0.8, 0.65, 0.85), (0.0, -0.05, 0.05)):
        work = _log(own)
        truth, said = np.log(work.duration_s)[late], np.log(estimate("shrunk", work))[late]
        explained = 1 - ((truth - said) ** 2).mean() / truth.var()
        assert least < explained < most, own
        rolling = np.log(estimate("rolling", work))[late]
        assert ((truth - said) ** 2).mean() < ((truth - rolling) ** 2).mean()


def test_thin_evidence_is_shrunk_towards_what_all_last() -> None:
    learner = make_learner("shrunk")
    for job in range(60):
        asked = AskedJob("ann", "lab", "train", 1, 100.0 * job)
        learner.submit(job, asked)
        learner.end(job, asked, 100.0)
    new = AskedJob("bob", "lab", "other", 1, 6100.0)
    assert learner.submit(100, new).seconds == pytest.approx(100.0, rel=0.01)
    learner.end(100, new, 10_000.0)
    once = learner.submit(101, new).seconds
    assert 100 < once < 10_000
    for job in range(101, 110):
        learner.submit(job, new)
        learner.end(job, new, 10_000.0)
    assert once < learner.submit(110, new).seconds
    assert learner.submit(110, new).seconds == pytest.approx(10_000, rel=0.5)


def test_no_look_ahead() -> None:
    """A job that ends later changes no belief."""
    work = _log(0.5, jobs=300)
    longer_s = work.duration_s.copy()
    longer_s[-100:] *= 50
    other = make_workload("x", work.submit_s, work.gpus, longer_s, user=work.user)
    np.testing.assert_array_equal(estimate("shrunk", work)[:201], estimate("shrunk", other)[:201])


def test_constant_and_what_a_service_can_learn_by() -> None:
    assert set(estimate("constant:prior=60", _log(0.5, jobs=20))) == {60.0}
    for name in ("oracle", "noisy", "gbdt"):
        with pytest.raises(InputError, match=f"estimator '{name}' needs a whole log"):
            make_learner(name)
