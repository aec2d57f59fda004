"""Runs in which cores and memory are scheduled: by hand, against the released simulator's rules, and by invariants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.readers import read

CLUSTER = Cluster.parse("2x4/cpu=12,mem=240")
EVERY = (
    "fixed", "proportional", "synergy-greedy", "synergy-tune", "synergy-knapsack", "synergy-opt", "drf", "tetris",
)  # fmt: skip
MODELS = ("hungry", "donor", "strange")


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """Two models: one that gains from cores up to 9 a GPU, one that needs next to nothing."""
    cores = [0.34, 0.67, 1.0, 2.0, 2.5]
    hungry = {"tput": [[min(c, 0.2), c, c] for c in cores], "speedup_vs_proportional": 2.5, "cpus_per_gpu": 9}
    donor = {"tput": [[1, 1, 1]] * 5, "speedup_vs_proportional": 1, "cpus_per_gpu": 1}
    hungry |= {"mem_gb_per_gpu": 60, "iter_time_s_at_proportional": 0.7}
    donor |= {"mem_gb_per_gpu": 20, "iter_time_s_at_proportional": 0.3}
    data = {
        "cpu_axis": [1, 2, 3, 6, 9],
        "mem_axis_gb": [20, 60, 120],
        "profiles": {"cpu_per_gpu_3": {"hungry_1": hungry, "donor_1": donor}},
    }
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps(data))
    return str(path)


def jobs(*rows: tuple[float, int, float, str]) -> Workload:
    """(submit, GPUs, seconds, model)."""
    submit, gpus, seconds, models = (list(column) for column in zip(*rows, strict=True))
    code = np.array([MODELS.index(m) for m in models], np.int64)
    return make_workload("t", np.array(submit), np.array(gpus, np.int64), np.array(seconds), model=Codes(code, MODELS))


def run(work: Workload, profile: str, allocator: str, policy: str = "fifo", **more: Any) -> Any:
    more.setdefault("cluster", CLUSTER)
    cluster = more.pop("cluster")
    return simulate(
        Experiment(
            work, cluster, policy, allocator=allocator, profile=profile, check_invariants=True, compiled=False, **more
        )
    )


def test_cores_move_to_the_hungry_without_a_restart(profile: str) -> None:
    work = jobs((0, 1, 1000, "hungry"), (0, 1, 4000, "donor"), (100, 2, 400, "hungry"))
    one = Cluster.parse("1x4/cpu=12,mem=240")
    got = run(work, profile, "synergy-tune", "srtf", cluster=one, costs="none")
    # alone: 9 cores, 2.5 fold; from 100 s the gang of two wants 6 cores a GPU and gets its share, 3 (12 - 9 - 1 < 6):
    # it takes back from the first, which runs at 1 until the gang ends
    assert got.preemptions.sum() == 0
    assert got.finish_s[2] == pytest.approx(500.0)
    assert got.finish_s[0] == pytest.approx(500 + (1000 - 250 - 400) / 2.5)


def test_proportional_gives_speed_one_and_tune_is_never_slower(profile: str) -> None:
    work = jobs(*((float(k), 1, 1000.0, "hungry" if k % 3 else "donor") for k in range(8)))
    plain = run(work, profile, "proportional")
    assert (plain.finish_s - plain.first_start_s).tolist() == pytest.approx([1000.0] * 8)
    tuned = run(work, profile, "synergy-tune")
    assert (tuned.jct_s <= plain.jct_s + 1e-6).all()


@pytest.mark.parametrize("allocator", EVERY)
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "tiresias-l", "gavel"])
def test_invariants_hold_under_every_policy(profile: str, allocator: str, policy: str) -> None:
    rng = np.random.default_rng(5)
    rows = [
        (
            float(rng.integers(0, 3000)),
            int(rng.choice([1, 2, 4, 6])),
            float(rng.integers(50, 2000)),
            str(rng.choice(MODELS)),
        )
        for _ in range(14)
    ]
    got = run(jobs(*sorted(rows)), profile, allocator, policy)
    assert got.finished.all()
    if allocator not in ("fixed",):
        spent = got.finish_s - got.first_start_s
        assert (spent <= got.workload.duration_s / 0.99 + 60 * (1 + got.preemptions) + got.queue_s).all()


def test_rounds_decide_only_at_their_boundaries(profile: str) -> None:
    work = jobs((10, 1, 1000, "hungry"), (400, 1, 100, "donor"))
    got = run(work, profile, "synergy-tune:round=300", costs="none")
    assert got.first_start_s.tolist() == [300, 600]


def test_nodes_fail_and_jobs_come_back(profile: str) -> None:
    work = jobs(*((float(k), 2, 3000.0, "hungry") for k in range(4)))
    got = run(work, profile, "synergy-knapsack", fail_nodes="mtbf=2000,mttr=300", seed=3)
    assert got.finished.all()
    assert got.summary["node_failures"] > 0


def test_quotas_hold_for_allocators_that_look_at_the_whole_queue(profile: str) -> None:
    work = jobs(*((0.0, 1, 500.0, "donor") for _ in range(6)))
    one = Codes(np.zeros(6, np.int64), ("a",))
    from dataclasses import replace

    limited = Cluster(CLUSTER.groups, quotas={"a": 2}, spec="q")
    got = run(replace(work, tenant=one), profile, "synergy-greedy", cluster=limited)
    assert sorted(got.finish_s.tolist()) == [500, 500, 1000, 1000, 1500, 1500]


def test_optimistic_profiling_is_charged_once_and_believed(profile: str) -> None:
    work = jobs((0, 1, 1000, "hungry"), (0, 1, 1000, "hungry"))
    oracle = run(work, profile, "synergy-tune")
    guess = run(work, profile, "synergy-tune:profiling=optimistic")
    cost = guess.summary["profiling_s"] / 2
    assert cost > 0
    assert (guess.finish_s - oracle.finish_s).tolist() == pytest.approx([cost, cost], rel=0.05)
    assert guess.summary["lost_gpu_s"] == pytest.approx(2 * cost)


def test_released_rounds_by_hand(profile: str) -> None:
    """Whole iterations in 300 s, an end only at a round's end, the first round at a multiple of 300 s."""
    work = jobs((20, 1, 0.7 * 2000, "hungry"), (20, 1, 0.3 * 1001, "donor"))
    got = run(work, profile, "synergy-tune", compat=("synergy",))
    # hungry: floor(300 / (0.7 / 2.5)) = 1071 a round, so 2000 take two rounds; donor: 1000 a round, so two as well
    assert got.first_start_s.tolist() == [300, 300]
    assert got.finish_s.tolist() == [900, 900]
    plain = run(work, profile, "proportional", compat=("synergy",))
    assert plain.finish_s.tolist() == [300 + 300 * 5, 900]


def test_released_replay_of_an_early_arrival_begins_at_one_second(profile: str) -> None:
    work = jobs((0, 1, 300.0, "donor"), (0.5, 1, 300.0, "donor"))
    assert run(work, profile, "synergy-tune", compat=("synergy",)).finish_s.tolist() == [301, 301]


def test_released_fifo_takes_gpus_from_whoever_came_later(profile: str) -> None:
    """A gang that was passed over gets all GPUs once its turn has come; whoever came later has no claim to them."""
    work = jobs((1, 4, 300.0, "donor"), (2, 8, 300.0, "donor"), (3, 4, 900.0, "donor"))
    got = run(work, profile, "proportional", compat=("synergy",))
    assert got.finish_s.tolist() == [600, 900, 1500]
    assert got.preemptions.tolist() == [0, 0, 1]


def test_released_tuning_makes_room_on_one_server_and_then_looks_everywhere(profile: str) -> None:
    """The gang's peers on the first server with two free GPUs give up cores, but its first GPU lies elsewhere."""
    one = ((1.0, 1, 1.5e6, "hungry"),)  # 9 of 12 cores
    work = jobs(*one, *one, (2, 2, 1.5e6, "donor"), (3, 3, 300.0, "hungry"))
    got = Simulation(
        Experiment(work, Cluster.parse("2x4/cpu=12,mem=240"), "fifo", allocator="synergy-tune", profile=profile,
                   compat=("synergy",), compiled=False)
    )  # fmt: skip
    got.advance(301.0)
    state = got.engine.state
    at, nodes = int(state.i[3, col.SLICE]), []
    while at >= 0:
        nodes.append((int(state.slices[at, col.SLICE_NODE]), int(state.slices[at, col.SLICE_GPUS])))
        at = int(state.slices[at, col.SLICE_NEXT])
    # servers hold (9 + 2 donor cores, 1 free GPU) and (9, 3 free): it is the second that is made to leave 9 cores
    assert nodes == [(1, 3)]


def test_finish_time_order_serves_the_worst_off_first_unless_asked_otherwise(profile: str) -> None:
    work = jobs((0, 8, 1000.0, "donor"), (1, 8, 4000.0, "donor"), (2, 8, 400.0, "donor"))
    worst = run(work, profile, "proportional", "ftf:round=100", costs="none")
    best = run(work, profile, "proportional", "ftf:first=best,round=100", costs="none")
    assert worst.finish_s[2] < worst.finish_s[1]  # the short job suffers most from waiting
    assert best.finish_s[2] > best.finish_s[1]


def test_gavel_counts_with_what_tuning_gives(profile: str) -> None:
    work = jobs((0, 1, 1000, "hungry"), (0, 1, 1000, "donor"))
    e = Experiment(work, Cluster.parse("1x1:v100/cpu=9,mem=120+1x1:a100/cpu=3,mem=60"), "gavel:objective=throughput",
                   allocator="synergy-tune", profile=profile, compiled=False)  # fmt: skip
    rates = Simulation(e).engine.facts.rates
    assert rates is not None
    assert rates[0].tolist() == pytest.approx([2.5, 1.0])
    assert rates[1].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"profile": "none"}, "h200-loader"),
        ({"cluster": Cluster.parse("2x4")}, "cpu="),
        ({"policy": "easy"}, "backfill"),
        ({"allocator": "synergy-tun"}, "synergy-tune"),
        ({"policy": "gavel:sharing=true"}, "share"),
    ],
)
def test_what_cannot_work_is_one_clear_line(profile: str, more: dict[str, Any], says: str) -> None:
    options = {"profile": profile, "cluster": CLUSTER, "policy": "fifo", "allocator": "synergy-tune", **more}
    work = jobs((0, 1, 10, "donor"))
    with pytest.raises(InputError, match=says):
        simulate(Experiment(work, options.pop("cluster"), options.pop("policy"), **options))


@pytest.mark.data
@pytest.mark.parametrize(
    ("trace", "policy", "theirs"),
    [
        ("repo_static_100.csv", "fifo", (5.6311, 5.4944, 5.0828)),
        ("repo_dynamic_srtf.csv", "fifo", (4.6226, 3.8817, 3.6751)),
        ("repo_dynamic_srtf.csv", "srtf", (3.9067, 3.2326, 3.1884)),
        ("repo_dynamic_srtf.csv", "las", (4.5551, 4.0534, 3.6701)),
        ("repo_dynamic_srtf.csv", "ftf", (6.2967, 6.4117, 4.9301)),
    ],
)
def test_released_simulator_to_every_digit(data_dir: Path, trace: str, policy: str, theirs: tuple[float, ...]) -> None:
    work = read(data_dir / "synergy" / trace)
    for allocator, hours in zip(("proportional", "synergy-greedy", "synergy-tune"), theirs, strict=True):
        e = Experiment(
            work, Cluster.parse("4x8/cpu=24,mem=500"), policy, allocator=allocator, compiled=False,
            profile=str(data_dir / "synergy" / "synergy_profiles.json"), compat=("synergy",),
        )  # fmt: skip
        assert simulate(e).summary["avg_jct_s"] / 3600 == pytest.approx(hours, abs=6e-5)
