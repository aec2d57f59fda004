"""Tiresias (NSDI'19): Figure 7 with its arithmetic, the queues, the skew rule and the released simulator's tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.compat.tiresias import Index
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.engine.gittins import gittins_index
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import jobs
from cotenant.workload.model_facts import FACTS, skew
from cotenant.workload.readers import read

FIGURE_7 = jobs((0, 2, 2), (0, 1, 8), (0, 2, 6))
SERVICES = np.array([4.0, 8.0, 12.0])
PREFIX = np.array([0.0, 4.0, 12.0, 24.0])
COUNTS = np.arange(4.0)


def play(policy: str, work=FIGURE_7, cluster: str = "1x2", **more) -> Outcome:
    return simulate(Experiment(work, Cluster.parse(cluster), policy, placement="count", costs="none", **more))


@pytest.mark.parametrize(
    ("policy", "finish", "mean"),
    [
        ("srsf", [2, 10, 16], 9.33),
        ("las:round=1", [5, 14, 16], 11.67),
        ("tiresias-g:queues=1,quantum=sup", [2, 10, 16], 9.33),
        ("srtf", [2, 16, 8], 8.67),
        ("fifo", [2, 10, 16], 9.33),
    ],
)
def test_figure_7(policy: str, finish: list[float], mean: float) -> None:
    result = play(policy)
    assert result.finish_s.tolist() == finish
    assert result.jct_s.mean() == pytest.approx(mean, abs=0.005)


def test_figure_7_slots_of_las() -> None:
    """Which job runs in each unit of time, as printed below the figure."""
    pieces = play("las:round=1").segments
    slots = [0] * 16
    for job, start, end in zip(pieces.job, pieces.start_s, pieces.end_s, strict=True):
        for slot in range(int(start), int(end)):
            assert slots[slot] == 0
            slots[slot] = int(job) + 1
    assert slots == [1, 2, 3, 2, 1, 2, 3, 2, 2, 3, 2, 2, 3, 2, 3, 3]


def test_gittins_index_with_the_supremum() -> None:
    found = [gittins_index(SERVICES, PREFIX, COUNTS, True, float(a), np.inf) for a in range(12)]
    exact = [1 / 8, 1 / 7, 1 / 6, 1 / 3, 1 / 6, 1 / 5, 1 / 4, 1 / 2, 1 / 4, 1 / 3, 1 / 2, 1]
    assert found == pytest.approx(exact)
    assert gittins_index(SERVICES, PREFIX, COUNTS, True, 12.0, np.inf) == 0


def test_gittins_index_with_a_fixed_quantum() -> None:
    assert gittins_index(SERVICES, PREFIX, COUNTS, False, 0.0, 4.0) == pytest.approx(1 / 12)
    assert gittins_index(SERVICES, PREFIX, COUNTS, False, 2.0, 4.0) == pytest.approx(1 / 10)
    assert gittins_index(SERVICES, PREFIX, COUNTS, False, 0.0, np.inf) == pytest.approx(1 / 8)


def test_gittins_supremum_is_the_largest_over_all_quanta() -> None:
    samples = np.sort(np.random.default_rng(4).exponential(100.0, 40))
    prefix = np.concatenate([[0.0], np.cumsum(samples)])
    counts = np.arange(41.0)
    for attained in (0.0, 10.0, 150.0):
        best = max(
            gittins_index(samples, prefix, counts, False, attained, s - attained) for s in samples if s > attained
        )
        assert gittins_index(samples, prefix, counts, True, attained, np.inf) == pytest.approx(best)


def test_samples_come_from_the_whole_trace_or_a_file(tmp_path: Path) -> None:
    listed = tmp_path / "services.txt"
    listed.write_text("12\n4\n8\n")
    context = Context(services_gpu_s=SERVICES)
    for text in ("tiresias-g", f"tiresias-g:samples={listed}"):
        rule = make_policy(text).rule(context)
        assert rule.samples.tolist() == [4, 8, 12]
        assert rule.prefix.tolist() == [0, 4, 12, 24]
        assert rule.counts.tolist() == [0, 1, 2, 3]


def test_a_job_is_demoted_when_its_service_reaches_the_limit() -> None:
    """Four GPUs, limit 3250: after 100 s another 712.5 s remain (the released code says 788)."""
    run = Simulation(Experiment(jobs((0, 4, 5000)), Cluster.parse("1x4"), "tiresias-l:threshold=3250", costs="none"))
    run.advance(100.0)
    assert run.state.f[0, col.EVENT] - run.state.t[col.NOW] == 712.5
    assert run.state.i[0, [col.EVENT_KIND, col.QUEUE]].tolist() == [col.CROSS, 0]
    run.advance(812.5)
    assert run.state.i[0, col.QUEUE] == 1


def test_a_starved_job_is_promoted_with_its_progress() -> None:
    """One GPU, limit 20, knob 1: whoever has run 20 s and waited 20 s is in the first queue again.

    A runs 0-20, B 20-40; at 40 A is promoted and, with the earliest first start, passes C, which has never
    started; so A and B take turns. Without promotion C goes first at 40.
    """
    work = jobs((0, 1, 100), (20, 1, 100), (40, 1, 15))
    run = Simulation(Experiment(work, Cluster.parse("1x1"), "tiresias-l:threshold=20,knob=1", costs="none"))
    run.advance(39.0)
    assert run.state.i[0, col.QUEUE] == 1
    assert run.state.f[0, [col.ATTAINED, col.DONE]].tolist() == [20, 20]
    run.advance(40.0)
    assert run.state.i[0, [col.QUEUE, col.STATE]].tolist() == [0, col.RUNNING]
    assert run.state.f[0, [col.ATTAINED, col.DONE]].tolist() == [0, 20]
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == [180, 200, 215]
    assert play("tiresias-l:threshold=20", work, "1x1").finish_s.tolist() == [135, 215, 55]


def test_skew_consolidates_exactly_four_models() -> None:
    names = tuple(FACTS)
    modes = parse_placement("skew:limit=0.4").modes(skew(names))
    packed = {name for name, mode in zip(names, modes, strict=True) if mode == col.CONSOLIDATED}
    assert packed == {"vgg19", "vgg16", "vgg11", "alexnet"}
    assert parse_placement("skew").modes(skew(["unheard-of"])).tolist() == [col.CONSOLIDATED]


def test_thresholds() -> None:
    assert make_policy("tiresias-l").rule(Context()).thresholds.tolist() == [3600]
    assert make_policy("tiresias-l:queues=3,threshold=100").rule(Context()).thresholds.tolist() == [100, 200]
    released = Context(compat={"tiresias": {}})
    assert make_policy("tiresias-l").rule(released).thresholds.tolist() == [3250, 7200]
    assert make_policy("tiresias-l:queues=1").rule(released).thresholds.tolist() == []


# Tables B and C of the specification: average JCT, average queue, makespan, preemptions (None: not determined).
TABLE_B = {
    "fifo": (1556.5, 1378.1, 5747, 0),
    "backfill": (715.3, 536.9, 4806, 0),
    "srtf": (519.9, 341.4, 4901, 7),
    "srsf": (563.4, 385.0, 4962, 13),
}
TABLE_C = {
    "fifo": (8840.4, 7928.8, 35372, 0),
    "backfill": (4699.4, 3787.8, 31815, 0),
    "srsf": (1715.0, 803.4, 33627, 418),
}


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "cluster", "policy", "row"),
    [("tiresias_60_job.csv", "2x4", policy, row) for policy, row in TABLE_B.items()]
    + [("tiresias_480_synthetic_job.csv", "15x4", policy, row) for policy, row in TABLE_C.items()],
)
def test_tables_of_the_released_simulator(
    data_dir: Path, file: str, cluster: str, policy: str, row: tuple[float, float, int, int]
) -> None:
    found = play(policy, read(data_dir / "traces" / file), cluster).summary
    assert found["avg_jct_s"] == pytest.approx(row[0], abs=0.1)
    assert found["avg_queue_s"] == pytest.approx(row[1], abs=0.1)
    assert found["makespan_s"] == pytest.approx(row[2], abs=0.5)
    assert found["preemptions"] == row[3]


@pytest.mark.data
@pytest.mark.parametrize(
    ("policy", "row"),
    [
        ("tiresias-l", (2882.8, 32439, 470)),
        ("tiresias-l:knob=1", (3331.6, 31427, 363)),
        ("tiresias-l:knob=8", (2972.5, 31488, 443)),
    ],
)
def test_table_c_as_the_released_simulator_plays_it(
    data_dir: Path, policy: str, row: tuple[float, int, int]
) -> None:  # fmt: skip
    work = read(data_dir / "traces" / "tiresias_480_synthetic_job.csv")
    found = play(policy, work, "15x4", compat=("tiresias",), compiled=False).summary
    assert found["avg_jct_s"] == pytest.approx(row[0], abs=0.05)
    assert (found["makespan_s"], found["preemptions"]) == row[1:]


@pytest.mark.data
def test_table_c_with_exact_demotions(data_dir: Path) -> None:
    work = read(data_dir / "traces" / "tiresias_480_synthetic_job.csv")
    found = play("tiresias-l:thresholds=[3250,7200],inner=released", work, "15x4").summary
    assert found["avg_jct_s"] == pytest.approx(2892.4, rel=0.001)
    by_paper = play("tiresias-l:thresholds=[3250,7200]", work, "15x4").summary
    assert by_paper["avg_jct_s"] == pytest.approx(2892.4, rel=0.03)


def test_released_index_counts_services_from_their_beginning() -> None:
    """Of 4, 8, 12 with a quantum of 6, seen from 3: 2/3 over (4 + 8 + 6) / 3; seen from 7: 1/2 over (8 + 6) / 2."""
    index = Index([4.0, 8.0, 12.0], 6.0)
    assert index(0.0) == pytest.approx(1e6 * 0.66667 / 6, abs=1e-3)
    assert index(4.0) == pytest.approx(1e6 * 0.5 / 7, abs=1e-3)
    assert index(12.0) == 0.0


def test_a_gang_that_was_passed_over_stays_behind_whoever_passed_it() -> None:
    # Demoted at 50 s, the gang does not fit at 150 s beside job 3, still in the first queue, and job 1 passes it.
    work = jobs((0, 2, 100), (10, 1, 250), (10, 1, 50), (20, 1, 250))
    released = play("tiresias-l:threshold=100,inner=released", work)
    assert released.finish_s.tolist() == [400, 300, 100, 350]
    by_paper = play("tiresias-l:threshold=100", work)  # at 200 s job 3 is demoted too: who started first comes first
    assert by_paper.finish_s.tolist() == [250, 350, 100, 400]


@pytest.mark.data
def test_table_a_no_load_no_queue(data_dir: Path) -> None:
    work = read(data_dir / "traces" / "tiresias_60_job.csv")
    for policy in ("fifo", "srsf", "las", "tiresias-l", "tiresias-g"):
        found = play(policy, work, "16x4").summary
        assert found["avg_jct_s"] == pytest.approx(178.4, abs=0.1)
        assert (found["avg_queue_s"], found["makespan_s"]) == (0, 3271)


def test_equal_services_are_counted_as_often_as_they_occur() -> None:
    rule = make_policy("tiresias-g").rule(Context(services_gpu_s=np.array([8.0, 4.0, 4.0])))
    assert (rule.samples.tolist(), rule.counts.tolist(), rule.prefix.tolist()) == ([4, 8], [0, 2, 3], [0, 8, 16])
    # Two of three end within 4, and the third has cost 4 by then.
    assert gittins_index(rule.samples, rule.prefix, rule.counts, False, 0.0, 4.0) == pytest.approx(2 / 12)
