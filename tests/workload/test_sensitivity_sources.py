"""Where matrices come from: files, curves, the cache model, optimistic profiling, and the generator beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.profiling import curve, optimistic, search
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import Sensitivity
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.workload.generators import generate
from cotenant.workload.profiles import load_profile
from cotenant.workload.profiles.curves import Curve, load_curves, save_curve, sensitivity_of
from cotenant.workload.storage import Storage, epoch_s, input_s, speeds


def jobs(*models: str) -> Workload:
    count = len(models)
    return make_workload(
        "t", np.zeros(count), np.ones(count, np.int64), np.ones(count), model=Codes(np.arange(count), models)
    )


def test_every_byte_that_is_not_cached_costs_a_fetch() -> None:
    storage = Storage(disk_gib_s=0.5, memory_gib_s=8.0)
    got = input_s(100.0, np.array([0.0, 0.5, 1.0]), np.array(2.0), storage)
    assert got.tolist() == pytest.approx([200.0, 50 / 16 + 100, 100 / 16])
    assert epoch_s(np.array(120.0), 100.0, np.array([0.0, 0.9]), np.array(2.0), storage).tolist() == [200.0, 120.0]


def test_a_matrix_is_the_lesser_of_cores_and_storage() -> None:
    storage = Storage(disk_gib_s=1.0, memory_gib_s=1e9)
    got = speeds(np.array([1.0, 2.0]), np.array([0.5, 1.0]), np.array([10.0, 60.0, 110.0]), 100.0, 10.0, storage, 50.0)
    assert got == pytest.approx(np.array([[0.5, 0.5, 0.5], [0.5, 1.0, 1.0]]))


def test_search_needs_few_points_and_finds_the_knee() -> None:
    asked: list[float] = []

    def measure(cores: float) -> float:
        asked.append(cores)
        return min(cores / 9, 1.0)

    found = search(measure, 24.0)
    assert len(asked) == found.measurements - 1 <= 9
    axis = np.arange(1.0, 25.0)
    assert np.abs(curve(found, axis) / np.minimum(axis / 9, 1.0) - 1).max() < 0.05


def test_search_of_a_job_that_needs_nothing_only_halves() -> None:
    assert search(lambda cores: 1.0, 24.0).cpus == (24.0, 12.0, 6.0, 3.0, 1.5, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_optimistic_profiling_is_close_and_charged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, mems = np.array([1.0, 2, 3, 4, 6, 9, 12, 24]), np.array([20.0, 60.0, 120.0])
    knee = rng.uniform(1, 24, 6)
    table = np.minimum(np.minimum(axis[None, :] / knee[:, None], 1.0)[:, :, None], rng.uniform(0.3, 1.0, (6, 1, 3)))
    table = np.maximum.accumulate(table, axis=2)
    truth = Sensitivity(axis, mems, table, np.full((6, 3), np.nan), np.full(6, 0.1))
    guess = optimistic(truth)
    assert np.abs(guess.belief.table / truth.table - 1).max() < 0.15
    assert np.abs(guess.belief.table / truth.table - 1).mean() < 0.03
    assert (guess.cost_s >= 50 * 0.1 * guess.measurements - 1e-9).all()
    assert guess.measurements.max() < 15
    rough = optimistic(truth, seed=seed, noise=0.1)
    assert not np.allclose(rough.belief.table, guess.belief.table)


def test_h200_curves_say_that_images_need_cores_and_text_does_not() -> None:
    found = load_profile("h200-loader", jobs("resnet50", "gpt2", "vit_b_16"), ("h200",)).sensitivity
    assert found is not None
    assert found.table[0, 0, -1] < 0.1 < found.table[0, -1, -1] == 1.0
    assert (found.table[1] == 1).all()
    assert (np.diff(found.table, axis=1) >= -1e-12).all()
    assert (np.diff(found.table, axis=2) >= -1e-12).all()
    assert found.table[0, -1, 0] < found.table[0, -1, -1]  # storage binds without a cache


@pytest.mark.parametrize("text", ["h200-loader:disk=0", "h200-loader:images=inf", "h200-loader:nonsense=1"])
def test_bad_parameters_of_the_built_in_profile(text: str) -> None:
    with pytest.raises(InputError, match="h200-loader"):
        load_profile(text, jobs("resnet50"), ("h200",))


def test_curves_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    save_curve(path, "a", Curve(np.array([0.5, 1.0, 2.0]), np.array([5.0, 10.0, 12.0])))
    save_curve(path, "B", Curve(np.array([1.0]), np.array([3.0]), 4.0))
    curves = load_curves(path)
    assert set(curves) == {"a", "b"}
    found = sensitivity_of(["a", "b", "c"], curves)
    assert found.speed(np.array([0]), np.array([1.0]), np.array([8.0]))[0] == pytest.approx(10 / 12)
    assert found.speed(np.array([0]), np.array([0.25]), np.array([8.0]))[0] == pytest.approx(2.5 / 12)
    assert found.speed(np.array([1]), np.array([1.0]), np.array([1.0]))[0] < 0.1  # less memory than it needs
    profile = load_profile(path, jobs("a", "c"), ("gpu",))
    assert profile.sensitivity is not None
    assert "does not know 1 of 2 models" in profile.notes[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cpu_axis": [3, 1]}, "cpu_axis"),
        ({"profiles": {}}, "cpu_per_gpu_3"),
        ({"profiles": {"cpu_per_gpu_3": {"m_1": {"tput": [[1]]}}}}, "broken"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"cpu_axis": [1, 2], "mem_axis_gb": [1], "profiles": {}, **change}))
    with pytest.raises(InputError, match=says):
        load_profile(path, jobs("m"), ("gpu",))


def test_generator_keeps_the_split_and_the_load() -> None:
    work = generate(Spec.parse("synergy-like:jobs=300,load=1.1,split=[20/70/10],seed=3"), 128)
    names = np.array(work.model.names)[work.model.code]
    language = np.isin(names, ["gnmt", "transformer", "lstm"]).mean()
    assert language == pytest.approx(0.7, abs=0.01)
    assert work.load(128) == pytest.approx(1.1, rel=1e-3)
    assert (work.gpus == 1).all()
    with pytest.raises(InputError, match="split"):
        generate(Spec.parse("synergy-like:split=[1/2]"), 8)


def test_noise_in_a_measured_curve_asks_for_no_more_cores() -> None:
    measured = Curve.measured(np.array([1.0, 2.0, 4.0, 8.0]), np.array([15.0, 22.9, 22.8, 23.0]))
    assert measured.steps_per_s.tolist() == [15.0, 23.0, 23.0, 23.0]
