"""`--costs profile`: each start, save, restore and exit takes what was measured of the job's model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.profiles.lifecycle import LifecycleRow
from cotenant.workload.profiles.profile_file import Measured, MeasuredModel, MeasuredPair, ProfileFile
from cotenant.workload.readers import read

# 10 steps a second. A start takes 5.1 s with its first step of 0.1 s, which is work: 5 s before any progress.
CYCLE = LifecycleRow(start_s=5.1, save_s=2.0, restore_s=1.0, suspend_s=0.5, resume_s=0.25, exit_s=3.0)
ONE = Cluster((NodeGroup(1, 1),))


def finished(tmp_path: Path, policy: str, costs: str, cycle: LifecycleRow = CYCLE) -> list[float]:
    """When two jobs end: 2000 steps from 0 s on, 50 steps from 100 s on, on one GPU."""
    path, log = tmp_path / "profile.json", tmp_path / "jobs.csv"
    entry = MeasuredModel(gpus=1, on={"gpu": Measured(steps_per_s=10.0, lifecycle=cycle)})
    ProfileFile().with_model("m", entry, {}).save(path)
    log.write_text("job_id,submit_s,num_gpus,model,steps\na,0,1,m,2000\nb,100,1,m,50\n")
    work = read(log, profile=path)
    outcome = simulate(Experiment(work, ONE, policy, profile=str(path), costs=costs, check_invariants=True))
    return list(np.asarray(outcome.finish_s).tolist())


@pytest.mark.parametrize("costs", ["profile", "default"])
def test_starts_and_exits_take_their_time(tmp_path: Path, costs: str) -> None:
    # a: 5 to start, 200 of work, 3 to exit; b after it: 5, 5 and 3.
    assert finished(tmp_path, "fifo", costs) == pytest.approx([208.0, 221.0])


def test_without_costs_only_work_counts(tmp_path: Path) -> None:
    assert finished(tmp_path, "fifo", "none") == pytest.approx([200.0, 205.0])


def test_a_preempted_job_saves_and_restores(tmp_path: Path) -> None:
    # a has 95 of its 203 s done at 100 s, and has left at 102. b starts, 5, works and exits, 8: 115.
    # a starts again, 5, restores, 1, and has 108 s left: 229.
    assert finished(tmp_path, "srtf", "profile") == pytest.approx([229.0, 115.0])


@pytest.mark.parametrize(
    ("cycle", "saves"),
    [(CYCLE, ""), (CYCLE, ",saves=false"), (replace(CYCLE, save_s=np.nan, restore_s=np.nan), "")],
    ids=["cheaper", "told", "cannot save"],
)
def test_a_job_is_suspended_where_that_is_better_or_the_only_way(
    tmp_path: Path, cycle: LifecycleRow, saves: str
) -> None:
    # Off the GPU after 0.5 s instead of 2, and back in 0.25 s instead of 6: b ends at 113.5, a at 113.5 + 0.25 + 108.
    assert finished(tmp_path, "srtf", f"profile:max_suspended=1{saves}", cycle) == pytest.approx([221.75, 113.5])


def test_a_job_saves_where_suspending_is_slow(tmp_path: Path) -> None:
    slow = replace(CYCLE, suspend_s=6.0, resume_s=2.0)
    assert finished(tmp_path, "srtf", "profile:max_suspended=1", slow) == pytest.approx([229.0, 115.0])


def test_a_profile_that_knows_none_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\n")
    with pytest.raises(InputError, match="profile 'none' does not know them"):
        simulate(Experiment(read(log), ONE, "fifo", costs="profile"))
    with pytest.raises(InputError, match="costs 'profiles': write default, none, flat"):
        simulate(Experiment(read(log), ONE, "fifo", costs="profiles"))
    with pytest.raises(InputError, match="most_suspended"):
        finished(tmp_path, "fifo", "profile:most_suspended=1")


@pytest.mark.parametrize(
    ("policy", "steps", "ends"), [("muri-s", 1000, [133.0, 133.0]), ("sjf-ffs", 500, [120.5, 70.5])]
)
def test_nobody_pays_for_the_others_start_and_exit(tmp_path: Path, policy: str, steps: int, ends: list[float]) -> None:
    # Both start at 0 and are warm at 5 s; each is at 0.8 of its speed beside the other while that makes steps. Of 500
    # steps the last is made at 67.5 s, when the other has 50 s left, alone; each takes 3 s to leave.
    path, log = tmp_path / "profile.json", tmp_path / "jobs.csv"
    entry = MeasuredModel(gpus=1, on={"gpu": Measured(steps_per_s=10.0, busy=0.5, gpu_gib=1.0, lifecycle=CYCLE)})
    pair = MeasuredPair("gpu", "time", "m", "m", 0.8, 0.8)
    ProfileFile().with_model("m", entry, {"gpu": 16.0}).with_pair(pair).save(path)
    log.write_text("job_id,submit_s,num_gpus,model,steps\na,0,1,m,1000\n" + f"b,0,1,m,{steps}\n")
    work = read(log, profile=path)
    outcome = simulate(Experiment(work, ONE, policy, profile=str(path), costs="profile", check_invariants=True))
    assert np.asarray(outcome.finish_s).tolist() == pytest.approx(ends)
