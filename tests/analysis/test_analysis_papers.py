"""The figures that the public files allow, beside those of the papers (`python -m bench.analyze` prints the table)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.analysis import analyze, gather
from cotenant.workload.readers.pieces import read_pieces

pytestmark = pytest.mark.data


def report_of(path: Path, folder: Path) -> dict[str, Any]:
    return analyze(gather(read_pieces(path), str(path), folder), replays=False)


def test_philly(data_dir: Path, tmp_path: Path) -> None:
    report = report_of(data_dir / "traces" / "philly_109k.csv.gz", tmp_path)
    assert report["jobs"] == 109_570
    assert report["gpu_hours"] == pytest.approx(2.680e6, rel=1e-3)
    assert report["run_s"]["mean"] == pytest.approx(28_329, rel=0.05)  # Helios, SC'21, of 103,467 of the jobs
    assert report["mean_gpus"] == pytest.approx(1.75, rel=0.05)  # Helios, SC'21
    assert report["over_a_week_share"] == pytest.approx(0.005, rel=1.0)  # Philly, ATC'19, of 75 days of them
    assert len(report["by_tenant"]) == pytest.approx(14, abs=1)  # Philly, ATC'19
    medians = [report["by_size"][name]["p50_run_s"] for name in ("1", "5-8", ">8")]
    assert min(medians[1:]) > 3 * medians[0]  # larger jobs run longer (Philly, figure 2)
    assert sum(report["by_hour"]) == sum(report["by_weekday"]) == 109_570
    assert {"users", "status", "attempts", "failure reasons", "queueing", "utilisation", "spread", "cluster"} <= set(
        report["lacking"]
    )
    assert (report["statuses"], report["users"], report["failures"], report["utilisation"]) == (None,) * 4


def test_venus(data_dir: Path, tmp_path: Path) -> None:
    report = report_of(data_dir / "traces" / "helios_venus_125k.csv.gz", tmp_path)
    assert report["run_s"]["p50"] == pytest.approx(206, rel=0.05)  # Helios, SC'21: all four clusters
    assert report["by_size"]["1"]["jobs_share"] > 0.5
    assert 0.03 <= report["by_size"]["1"]["gpu_hours_share"] <= 0.12
    assert report["by_size"][">8"]["gpu_hours_share"] == pytest.approx(0.60, abs=0.03)
    assert "2,379 jobs last exactly 172,800 s" in report["lacking_means"]["true length of the longest jobs"]
    assert {"tenants", "users", "status"} <= set(report["lacking"])
