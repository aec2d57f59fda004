"""`--compat muri` gives the released simulator's figures on its own trace; the corrected rules do better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.cycles import Cycles
from cotenant.policies.muri.grouping import Grouping
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.readers import read
from cotenant.workload.stages import stages_of

# policy, average JCT, makespan (seconds), allowed relative difference
REFERENCE = (
    ("fifo", 950_684.342, 4_224_129.3, 1e-6),
    ("srtf", 247_452.951, 4_066_820.0, 1e-6),
    ("srsf", 233_909.169, 4_198_586.6, 1e-6),
    ("tiresias-l", 328_736.501, 3_991_729.1, 1e-6),
    ("muri-s", 120_033.714, 2_663_198.7, 0.03),
    ("muri-l", 127_846.003, 2_671_191.1, 0.03),
)


@pytest.mark.data
@pytest.mark.parametrize(("policy", "jct_s", "makespan_s", "within"), REFERENCE)
def test_released_figures(data_dir: Path, policy: str, jct_s: float, makespan_s: float, within: float) -> None:
    work = read(data_dir / "muri" / "cluster_trace.csv")
    found = simulate(Experiment(work, Cluster.parse("8x8"), policy, compat=("muri",), compiled=False)).summary
    assert found["avg_jct_s"] == pytest.approx(jct_s, rel=within)
    assert found["makespan_s"] == pytest.approx(makespan_s, rel=within)


@pytest.mark.data
def test_corrected_rules_keep_memory(data_dir: Path) -> None:
    """No GPU ever holds more than its memory, and groups form all the same."""
    work = read(data_dir / "muri" / "cluster_trace.csv").take(np.arange(60))
    run = Simulation(Experiment(work, Cluster.parse("2x8"), "muri-s", costs="startup", compiled=False,
                                check_invariants=True, skip_infeasible=True))  # fmt: skip
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()
    assert (run.state.i[:, col.STARTS] > 1).any()


@pytest.mark.data
def test_merging_stops_when_everything_fits(data_dir: Path) -> None:
    stages = stages_of(read(data_dir / "muri" / "cluster_trace.csv"))
    assert stages is not None
    eights = np.flatnonzero(stages.gpus[stages.of] == 8)[:40]
    kinds = stages.of[eights].tolist()
    grouping = Grouping(Cycles(stages))
    for room in (64, 128, 200, 320):
        groups = grouping.group(eights.tolist(), [8] * 40, kinds, room)
        assert sorted(job for group in groups for job in group.jobs) == sorted(eights.tolist())
        assert max(len(group.jobs) for group in groups) <= 4
        required = 8 * len(groups)
        assert required <= max(room, 80)
        assert required > room - 8 or room == 320
