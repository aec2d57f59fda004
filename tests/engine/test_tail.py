"""Decisions from the end of the line against the walk over everybody, on the same jobs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.core.workload import Floats
from cotenant.engine import behind
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate

_CLUSTER = Cluster.parse("6x4")


def _played(policy: str, placement: str, costs: str, whole: bool) -> tuple[Floats, bool]:
    """When jobs finished and how often they were stopped; and whether the end of the line was looked at."""
    work = generate(Spec.parse("philly-like:jobs=120,load=1.4,seed=4"), _CLUSTER.gpus)
    run = Simulation(Experiment(work, _CLUSTER, policy, placement=placement, costs=costs, compiled=False))
    run.state.x[col.QUOTAS] = int(whole)  # as if somebody's quota could bind
    run.advance(math.inf)
    outcome = np.column_stack([run.state.f[:, [col.FINISH, col.WAITED]], run.state.i[:, [col.PREEMPTS, col.STARTS]]])
    return outcome, bool(run.state.x[col.LINED])


@pytest.mark.parametrize("placement", ["consolidated", "count", "spread"])
@pytest.mark.parametrize(
    ("policy", "costs"),
    [("srsf", "default"), ("srtf", "none"), ("las", "none"), ("las:round=300", "default"), ("tiresias-g", "default")],
)
def test_the_end_of_the_line_decides_as_all_of_it_does(
    policy: str, costs: str, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "_FEW", 0)
    quick, looked = _played(policy, placement, costs, whole=False)
    whole, kept = _played(policy, placement, costs, whole=True)
    assert looked
    assert not kept
    assert np.array_equal(quick, whole)
    assert quick[:, 2].sum() > 0  # somebody was stopped
