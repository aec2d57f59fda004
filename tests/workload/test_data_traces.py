"""The public files themselves: row counts and the fingerprints computed when they were collected."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.workload.describe import describe
from cotenant.workload.readers import read

pytestmark = pytest.mark.data

FINGERPRINTS = {
    "philly_109k.csv.gz": {
        "jobs": 109_570,
        "days": 129.4,
        "gpu_hours": 2.680e6,
        "job_shares": (87.1, 7.0, 4.9, 0.9),
        "hour_shares": (20.4, 21.1, 47.2, 11.3),
        "median": 1196,
        "p90": 27_510,
        "mean": 29_001,
        "largest": 128,
        "mean_gpus": 1.69,
        "under_60": 12_974,
        "odd": 52,
    },
    "helios_venus_125k.csv.gz": {
        "jobs": 125_303,
        "days": 193.8,
        "gpu_hours": 2.423e6,
        "job_shares": (51.8, 13.0, 25.2, 10.0),
        "hour_shares": (4.7, 7.9, 28.6, 58.8),
        "median": 204,
        "p90": 18_201,
        "mean": 9_088,
        "largest": 200,
        "mean_gpus": 6.74,
        "under_60": 27_757,
        "odd": 3_935,
    },
    "pai_60k.csv.gz": {
        "jobs": 60_105,
        "days": 63.7,
        "gpu_hours": 0.688e6,
        "job_shares": (77.0, 6.0, 3.2, 13.8),
        "hour_shares": (8.3, 2.5, 4.7, 84.5),
        "median": 618,
        "p90": 12_201,
        "mean": 5_029,
        "largest": 400,
        "mean_gpus": 4.97,
        "under_60": 9_262,
        "odd": 9_709,
    },
}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints(data: Path, name: str) -> None:
    want = FINGERPRINTS[name]
    start = time.perf_counter()
    work = read(data / "traces" / name)
    assert time.perf_counter() - start < 3  # about 0.1 s on an idle machine
    facts = describe(work)
    sizes = facts["sizes"]
    lengths = facts["duration_s"]
    assert len(work) == want["jobs"]
    assert work.span_s / 86400 == pytest.approx(want["days"], abs=0.05)
    assert facts["gpu_hours"] == pytest.approx(want["gpu_hours"], rel=5e-4)
    assert [100 * row["jobs_share"] for row in sizes] == pytest.approx(want["job_shares"], abs=0.06)
    assert [100 * row["gpu_hours_share"] for row in sizes] == pytest.approx(want["hour_shares"], abs=0.06)
    assert lengths["p50"] == pytest.approx(want["median"], abs=0.5)
    assert lengths["p90"] == pytest.approx(want["p90"], abs=1)
    assert lengths["mean"] == pytest.approx(want["mean"], abs=1)
    assert work.gpus.max() == want["largest"]
    assert work.gpus.mean() == pytest.approx(want["mean_gpus"], abs=0.006)
    assert np.count_nonzero(work.duration_s < 60) == want["under_60"]
    assert np.count_nonzero(work.gpus & (work.gpus - 1)) == want["odd"]
    assert any("columns ignored:" in note or "column ignored:" in note for note in work.notes)


def test_flaws_of_the_public_logs_are_named(data: Path) -> None:
    venus = " | ".join(describe(read(data / "traces/helios_venus_125k.csv.gz"))["flaws"])
    assert "2,379 jobs (1.9 %) last exactly 172800 s" in venus
    philly = " | ".join(describe(read(data / "traces/philly_109k.csv.gz"))["flaws"])
    assert "look cut off" not in philly
    assert "of the span holds under 1 % of the jobs" in philly


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("traces/tiresias_60_job.csv", 60),
        ("traces/tiresias_480_synthetic_job.csv", 480),
        ("traces/alibaba_v2023_openb_pods.csv", 8152 - 1088 - 861),
        ("helios/venus_september.csv.gz", 23_859),
        ("muri/trace1.csv", 1494),
        ("muri/cluster_trace.csv", 400),
        ("chronus/trace_job_Philly_MIX1.csv.gz", 30_940 - 184),
        ("chronus/trace_job_Philly_MIX2.csv.gz", 30_940 - 194),
        ("chronus/mix1_sample_10pc.csv.gz", 3079),
        ("synergy/t4_multi_600_l3.5.csv", 600),
        ("synergy/t7_readme_single_6400_l9.csv.gz", 6400),
        ("gavel/cont_multi_lam1800_s0_n2000.trace.gz", 2000),
        ("gavel/physical_cluster/max_min_fairness.trace", 96),
    ],
)
def test_rows(data: Path, name: str, jobs: int) -> None:
    assert len(read(data / name, profile=data / "gavel/simulation_throughputs.json.gz")) == jobs


def test_known_totals(data: Path) -> None:
    sixty = read(data / "traces/tiresias_60_job.csv")
    assert sixty.duration_s.mean() == pytest.approx(178.4, abs=0.05)
    assert sixty.submit_s[-1] == 1779
    synthetic = read(data / "traces/tiresias_480_synthetic_job.csv")
    assert synthetic.gpu_s == 1_701_394
    assert synthetic.load(60) == pytest.approx(2.067, abs=0.01)
    assert read(data / "muri/trace1.csv").gpu_s / 3600 == pytest.approx(383_326, rel=1e-4)
    chronus = read(data / "chronus/trace_job_Philly_MIX1.csv.gz")
    assert chronus.duration_s.mean() / 60 == pytest.approx(260, abs=3)
    assert 1.14 <= chronus.load(960) <= 1.18 + 0.02
    tightness = (chronus.deadline_s - chronus.submit_s) / chronus.duration_s
    assert np.nanmedian(tightness) == pytest.approx(1.97, abs=0.03)
    gavel = read(
        data / "gavel/cont_single_lam900_s0_n2000.trace.gz",
        profile=data / "gavel/simulation_throughputs.json.gz",
    )
    assert gavel.duration_s.min() > 60 * 10**1.5 * 0.99
    assert gavel.duration_s.max() < 60 * 10**4 * 1.01
    assert gavel.submit_s[-1] == pytest.approx(1_786_954, abs=1)


def test_files_that_are_not_job_logs_say_so(data: Path) -> None:
    for name in (
        "traces/alibaba_v2023_openb_gpu_nodes.csv",
        "traces/tiresias_yarn_gputime_10k.csv",
        "helios/philly_node_sequence.csv.gz",
    ):
        with pytest.raises(InputError, match=r"line 1: (unknown format|column)"):
            read(data / name)
