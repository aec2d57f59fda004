"""What is noted of nodes, so that decisions need not look at them, is never too low."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.spec import Spec
from cotenant.engine.behind import begin_decision
from cotenant.engine.openings import DATED, STALE, look_at_node
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate


@pytest.mark.parametrize("policy", ["srtf", "srsf", "srtf:min_run=0"])
@pytest.mark.parametrize("costs", ["default", "none"])
def test_limits_of_nodes_are_upper_limits(policy: str, costs: str) -> None:
    cluster = Cluster.parse("6x8")
    work = generate(Spec.parse("philly-like:jobs=250,load=3,seed=3"), cluster.gpus)
    run = Simulation(Experiment(work, cluster, policy, costs=costs))
    s, rule, compared = run.state, run.engine.rule, 0
    part = s.top.shape[0] // 3
    for now in np.linspace(work.submit_s[0], work.submit_s[-1], 400).tolist():
        run.advance(now)
        begin_decision(s, rule, now)
        for n in np.flatnonzero(s.top[0, :-1] > STALE).tolist():
            noted, every = s.top[1:part, n].copy(), s.top[1:part, -1].copy()
            look_at_node(s, rule, n, now)
            assert (noted >= s.top[1:part, n]).all()
            assert (every >= s.top[1:part, n]).all()
            compared += int(np.isfinite(noted).sum())
            s.top[1:part, n], s.top[1:part, -1], s.top[0, n] = noted, every, DATED  # go on from what was noted
    assert s.x[col.SEATED] == 1
    assert compared > 100
