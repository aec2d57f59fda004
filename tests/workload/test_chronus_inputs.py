"""What Chronus' authors measured of splits and asked users about their estimates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.estimators import estimate
from cotenant.beliefs.survey import ERRORS, SHARES
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import jobs
from cotenant.workload.profiles import load_profile


def test_users_are_as_wrong_as_they_said() -> None:
    work = jobs(*((float(k), 1, 1000.0) for k in range(20_000)))
    believed_s = estimate("survey", work, seed=3)
    factor = np.maximum(believed_s, 1e6 / believed_s) / 1000.0 - 1.0
    shares = np.histogram(factor, ERRORS)[0] / len(work)
    assert shares == pytest.approx(SHARES, abs=0.01)
    assert (believed_s > 1000).mean() == pytest.approx(0.5, abs=0.02)
    assert (
        estimate("survey", jobs(*((float(k), 1, 1000.0) for k in range(10))), seed=3).tolist()
        == believed_s[:10].tolist()
    )


def test_splits_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model_info.json"
    path.write_text(json.dumps({"vgg16": {"2": {"1": 1.0, "2": 0.9}, "8": {"1": 1.0, "4": 0.26, "2": 0.57}}}))
    work = jobs((0.0, 8, 10.0), (0.0, 1, 10.0), (0.0, 3, 10.0), (0.0, 8, 10.0))
    work = replace(work, model=Codes(np.array([0, 0, 0, 1]), ("VGG16", "other")))
    found = load_profile(path, work, ["gpu"])
    assert found.speed[found.row, 0].tolist() == [[1.0, 0.57], [1.0, 1.0], [1.0, 0.9], [1.0, 1.0]]
    path.write_text(json.dumps({"vgg16": {"2": {"1": 1.0, "2": -0.9}}}))
    with pytest.raises(InputError, match="must be a speed above 0"):
        load_profile(path, replace(work, model=Codes(np.zeros(4, int), ("vgg16",))), ["gpu"])


@pytest.mark.parametrize(("models", "finish_s"), [((0, 1), [600, 600]), ((1, 1), [600, 2400])])
def test_who_loses_most_by_a_split_has_a_whole_node(tmp_path: Path, models: tuple[int, ...], finish_s: object) -> None:
    """Two gangs of 4 come at once, and one node has 4 GPUs. ResNet loses nothing on two nodes, VGG three quarters."""
    path = tmp_path / "model_info.json"
    path.write_text(json.dumps({"resnet50": {"4": {"1": 1.0, "2": 1.0}}, "vgg16": {"4": {"1": 1.0, "2": 0.25}}}))
    work = jobs((0.0, 4, 600.0), (0.0, 4, 600.0))
    work = replace(work, model=Codes(np.array(models), ("resnet50", "vgg16")))
    cluster = Cluster.parse("1x4+2x2")
    run = Simulation(Experiment(work, cluster, "chronus", costs="none", profile=str(path), compiled=False))
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == finish_s
