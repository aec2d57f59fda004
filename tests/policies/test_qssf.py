"""QSSF: order by predicted GPU time, strict head of line, and its own estimator where none is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiled_kit import simulate_apart
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import make_workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.cluster_file import load_cluster
from cotenant.workload.readers import read

NODE = Cluster.parse("1x8")


def test_golden_head_of_line() -> None:
    """Helios: 4 GPUs are held until 100 s; X (8 GPUs, 10 s) keeps Y (4 GPUs, 50 s) back, unless told otherwise."""
    work = make_workload("x", np.array([0.0, 1, 1]), np.array([4, 8, 4]), np.array([100.0, 10, 50]))
    strict = simulate(Experiment(work, NODE, "qssf:first=service", estimator="oracle", costs="none"))
    np.testing.assert_allclose(strict.finish_s, [100, 110, 160])
    loose = simulate(Experiment(work, NODE, "qssf:strict=false,first=service", estimator="oracle", costs="none"))
    np.testing.assert_allclose(loose.finish_s, [100, 110, 51])


def test_service_not_duration_decides() -> None:
    """8 GPUs for 20 s are more service than 2 GPUs for 60 s."""
    work = make_workload("x", np.array([0.0, 1, 1]), np.array([8, 8, 2]), np.array([10.0, 20, 60]))
    found = simulate(Experiment(work, NODE, "qssf:first=service", estimator="oracle", costs="none"))
    np.testing.assert_allclose(found.first_start_s, [0, 70, 10])


def test_predictions_count_among_jobs_of_one_size() -> None:
    """Fewer GPUs first, whatever is believed; of two jobs of 8 GPUs the one that is believed to be shorter."""
    work = make_workload("x", np.array([0.0, 1, 1, 1]), np.array([8, 8, 8, 2]), np.array([10.0, 20, 5, 600]))
    found = simulate(Experiment(work, NODE, "qssf", estimator="oracle", costs="none"))
    np.testing.assert_allclose(found.first_start_s, [0, 615, 610, 10])
    with pytest.raises(InputError, match="first of policy 'qssf'"):
        simulate(Experiment(work, NODE, "qssf:first=size"))


def test_predicts_by_itself_and_says_so() -> None:
    work = make_workload("x", np.arange(3.0), np.ones(3, np.int64), np.array([5.0, 6, 7]))
    assert simulate(Experiment(work, NODE, "qssf")).summary["estimator"] == "shrunk"
    assert simulate(Experiment(work, NODE, "qssf", estimator="mean")).summary["estimator"] == "mean"
    assert simulate(Experiment(work, NODE, "sjf")).summary["estimator"] == "oracle"


@pytest.mark.data
@pytest.mark.slow
def test_venus(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helios: JCT and queue of SJF as published, of SSF as determined; QSSF below a constant belief."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    from bench.helios_logs import write_cluster

    work = read(data_dir / "helios/venus_september.csv.gz")
    cluster = load_cluster(str(write_cluster(tmp_path)))
    told = {
        ("fifo", ""): (65_720.5, 53_951.3, 15_454),
        ("sjf:strict=true", ""): (21_095.0, 9_325.8, 8_353),
        ("qssf:first=service", "oracle"): (15_859.3, 4_090.0, 5_830),
        ("qssf", "constant"): (18_483.0, 6_713.7, 3_804),
    }
    runs = (Experiment(work, cluster, policy, estimator=by, costs="none") for policy, by in (*told, ("qssf", "")))
    *of_told, learned = simulate_apart(*runs)
    for found, (jct, queue, queued) in zip(of_told, told.values(), strict=True):
        assert found.summary["avg_jct_s"] == pytest.approx(jct, abs=0.1)
        assert found.summary["avg_queue_s"] == pytest.approx(queue, abs=0.1)
        assert int((found.queue_s > 0).sum()) == queued
    assert float(str(learned.summary["avg_jct_s"])) < 18_000
