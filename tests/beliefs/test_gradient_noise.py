"""The gradient noise is estimated from norms of gradients, live and simulated; nobody is told the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotenant.beliefs.gradient_noise import UNKNOWN, NoiseBelief
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.elastic import BY_NAME
from cotenant.workload.generators import generate


def test_two_batches_give_the_noise() -> None:
    """|G|^2 = 2, S = 600: 2 + 600 / 30 = 22 at 30 samples, 2 + 600 / 120 = 7 at 120; phi = 300."""
    belief = NoiseBelief()
    assert belief.of(3) == UNKNOWN
    belief.take(3, 120, 7.0, 120, 7.0)  # one GPU: there is no second batch
    assert belief.of(3) == UNKNOWN
    belief.take(3, 30, 22.0, 120, 7.0)
    assert belief.of(3) == pytest.approx(300.0)
    belief.take(3, 30, 24.0, 120, 6.5, steps=3)  # S = 17.5 * 40 = 700, |G|^2 = (780 - 720) / 90 = 2 / 3
    assert belief.of(3) == pytest.approx((600 + 3 * 700) / (2 + 3 * 2 / 3))
    belief.take(4, 30, 22.0, 120, 5.0)  # large_sq * large < small_sq * small: lost in the noise
    assert belief.of(4) == UNKNOWN


def test_simulated_jobs_measure_it_and_are_never_exactly_right() -> None:
    work = generate(Spec.parse("ones-like:jobs=10,seed=1,gap=5"), 16)
    run = Simulation(Experiment(work, Cluster.parse("4x4"), "tiresias-l", compiled=False))
    assert run.elastic is None  # nobody resizes: nothing to tell
    run = Simulation(Experiment(work, Cluster.parse("4x4"), "optimus", compiled=False))
    assert run.elastic is not None
    assert (run.elastic.training.noise == UNKNOWN).all()
    run.advance(math.inf)
    told, truth = run.elastic.training, np.array([BY_NAME[work.model.names[code]].noise for code in work.model.code])
    measured = told.noise != UNKNOWN
    assert measured.sum() >= 5
    ratio = told.noise[measured] / truth[measured]
    assert not np.isclose(ratio, 1.0, rtol=1e-6).any()
    assert 0.7 < np.median(ratio) < 1.4
