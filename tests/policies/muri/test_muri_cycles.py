"""Cycle times: the examples of the specification and all groups that the released functions were run on."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.cycles import Cycles, all_cycles, four_stage_cycle, order_of_turns
from cotenant.core.stages import FITTED, Stages

A2C, GPT2, VGG16 = (514, 14, 0), (0.6, 410, 0), (117, 68, 0)
A2C8, BERT8, GPT8, VGG8, RES8 = (502, 14, 0.4), (0.5, 167, 59), (0.6, 419, 49), (82, 75, 66), (784, 117, 77)


@pytest.mark.parametrize(
    ("group", "best", "worst"),
    [
        ((A2C, GPT2), 528.0, 938.0),
        ((VGG16, VGG16), 234.0, 253.0),
        ((A2C, A2C), 542.0, 1028.0),
        ((BERT8, GPT8), 586.5, 694.0),
        ((A2C8, BERT8, VGG8), 568.4, 735.0),
        ((A2C8, BERT8, GPT8, RES8), 978.0, 1320.0),
        (((4, 1, 1, 1), (1, 4, 1, 1), (1, 1, 4, 1), (1, 1, 1, 4)), 7.0, 13.0),
    ],
)
def test_golden_cycles(group: tuple[tuple[float, ...], ...], best: float, worst: float) -> None:
    found = all_cycles(group)
    assert min(found) == pytest.approx(best, abs=1e-9)
    assert max(found) == pytest.approx(worst, abs=1e-9)


def test_four_stages_in_order_take_ten() -> None:
    assert four_stage_cycle([(4, 1, 1, 1), (1, 4, 1, 1), (1, 1, 4, 1), (1, 1, 1, 4)]) == 10


def test_turns_go_round_in_the_order_of_the_shortest_cycle() -> None:
    """A loader, a trainer and a writer: whose long stages fall into one slot has to come in this order."""
    jobs = [(5, 90, 5, 0), (5, 5, 90, 0), (90, 5, 5, 0)]
    best, worst = order_of_turns(jobs), order_of_turns(jobs, worst=True)
    assert four_stage_cycle([jobs[at] for at in best]) == min(all_cycles(jobs)) == 105
    assert four_stage_cycle([jobs[at] for at in worst]) == max(all_cycles(jobs)) > 180
    assert (best[best.index(0) - 1], best) == (1, (1, 0, 2))


def _stages(rows: list[tuple[str, int, float, tuple[float, float, float]]]) -> Stages:
    return Stages(
        of=np.arange(len(rows)),
        gpus=np.array([row[1] for row in rows]),
        times=np.array([row[3] for row in rows]),
        alone_s=np.array([row[2] for row in rows]),
        start_s=np.zeros(len(rows)),
        gpu_gib=np.zeros(len(rows)),
        contention=FITTED,
    )


def test_calibrated_efficiency_and_throughput() -> None:
    cycles = Cycles(_stages([("a2c", 1, 517, A2C), ("gpt2", 1, 426, GPT2), ("vgg16", 1, 107, VGG16)]))
    assert cycles.cycle_s((0, 1)) == pytest.approx(691.8621, abs=1e-4)
    assert cycles.efficiency((0, 1)) == pytest.approx(0.339157, abs=1e-6)
    assert cycles.throughput((0, 1)) == pytest.approx(1.3834, abs=1e-4)
    assert cycles.throughput((2, 2)) == pytest.approx(0.7084, abs=1e-4)


@pytest.mark.data
def test_all_golden_groups(data_dir: Path) -> None:
    """1,458 groups of 2 to 4 of eight models on 1, 8 and 32 GPUs, to the digits of the file."""
    profiles = {}
    with (data_dir / "muri" / "model_stage_profiles.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["variant"] == "main":
                times = (float(row["data_ms"]), float(row["gpu_ms"]), float(row["net_ms"]))
                profiles[int(row["num_gpu"]), row["model"]] = (float(row["iteration_time_ms"]), times)
    names = sorted(profiles)
    cycles = Cycles(_stages([(model, gpus, *profiles[gpus, model]) for gpus, model in names]))
    checked = 0
    with (data_dir / "muri" / "golden_muri_groups.csv").open() as lines:
        for row in csv.DictReader(lines):
            gpus = int(row["num_gpu"])
            kinds = tuple(sorted(names.index((gpus, model)) for model in row["models"].split("+")))
            raw = all_cycles([profiles[names[kind]][1] for kind in kinds])
            assert min(raw) == pytest.approx(float(row["cycle_best_ms"]), abs=1e-4), row
            assert max(raw) == pytest.approx(float(row["cycle_worst_ms"]), abs=1e-4), row
            assert cycles.cycle_s(kinds) == pytest.approx(float(row["cycle_best_with_overhead_ms"]), abs=1e-4)
            assert cycles.throughput(kinds) == pytest.approx(float(row["norm_tput_sum"]), abs=1e-4)
            busy = sum(sum(profiles[names[kind]][1]) for kind in kinds)
            assert busy / (4 * min(raw)) == pytest.approx(float(row["eff_best(no overhead factor)"]), abs=1e-6)
            checked += 1
    assert checked == 1458
