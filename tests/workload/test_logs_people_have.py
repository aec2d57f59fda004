"""Logs of Slurm, Kubernetes, Ray, SWF and other papers, with their oddities; expected values are worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Status, Workload
from cotenant.sim.driver import Experiment, simulate
from cotenant.workload.readers import read
from cotenant.workload.writer import write_csv

GOLDEN = Path(__file__).parent / "golden"


def rows(work: Workload) -> list[tuple[str, float, int, float, str, str]]:
    tenants = [work.tenant.names[code] for code in work.tenant.code]
    status = [Status(value).name for value in work.status]
    columns = work.job_id, work.submit_s, work.gpus, work.duration_s
    return list(zip(*(column.tolist() for column in columns), tenants, status, strict=True))


def test_sacct_P() -> None:
    work = read(GOLDEN / "sacct_P.txt")
    assert rows(work) == [
        ("1001", 0, 4, 3600, "vision", "PASSED"),
        ("1002_1", 300, 1, 30, "nlp", "KILLED"),
        ("1002_2", 300, 1, 7200, "nlp", "FAILED"),
        ("1003", 1200, 10, 3600, "vision", "FAILED"),
        ("1007", 2400, 2, 4200, "nlp", "PASSED"),  # requeued: 600 s before its node failed
        ("1008", 2700, 1, 100, "nlp", "UNKNOWN"),
    ]
    assert work.attempts == {4: (600.0,)}
    assert work.extra["wait_s"].tolist() == [600, 1, 60, 13200, 60, 0]
    assert work.extra["time_limit_s"].tolist()[:3] == [7200, 86400, 7200]
    assert math.isnan(float(work.extra["time_limit_s"].tolist()[3]))  # UNLIMITED
    assert work.mem_gib[:4].tolist() == [64, 15.625, 8, 1024]  # 64G, 16000M, 4Gc on two cores, 1T
    assert work.cpus[:4].tolist() == [8, 2, 2, 64]
    assert work.extra["gpu_kind"].tolist() == ["a100", "v100", "", "a100+v100", "a100", ""]
    assert work.extra["partition"].tolist() == ["gpu"] * 6
    told = "\n".join(work.notes)
    for words in (
        "2 left out (steps of jobs)", "2 left out (not started)", "1 left out (not ended)", "1 left out (no GPUs)",
        "'ABGEBROCHEN' of 1 jobs", "1 jobs were requeued",
    ):  # fmt: skip
        assert words in told


def test_sacct_fixed_width() -> None:
    work = read(GOLDEN / "sacct_fixed.txt")
    assert rows(work) == [
        ("2001", 0, 4, 3600, "vision", "PASSED"),
        ("2003", 660, 2, 90005, "nlp", "KILLED"),
        ("2004", 720, 1, 10.5, "nlp", "FAILED"),
    ]
    assert work.extra["time_limit_s"].tolist() == [172800, 3600, 3600]


def test_sacct_json() -> None:
    work = read(GOLDEN / "sacct.json")
    assert rows(work) == [("3001", 0, 4, 3600, "vision", "PASSED"), ("3002_7", 60, 1, 30, "nlp", "KILLED")]
    assert work.mem_gib[0] == 64
    assert work.extra["wait_s"].tolist() == [600, 10]
    assert float(work.extra["time_limit_s"].tolist()[0]) == 7200


def test_swf() -> None:
    work = read(GOLDEN / "small.swf")
    assert rows(work) == [
        ("1", 0, 4, 100, "group-2", "PASSED"),
        ("2", 50, 8, 30, "group-2", "KILLED"),
        ("4", 61, 2, 7, "group-2", "FAILED"),
    ]
    assert work.extra["wait_s"].tolist() == [10, 0, 5]


def test_kubernetes() -> None:
    work = read(GOLDEN / "pods.json")
    assert rows(work) == [("vision/gang", 0, 8, 3600, "vision", "PASSED"), ("nlp/alone", 300, 1, 60, "nlp", "FAILED")]
    assert work.cpus[0] == 8.5
    assert work.mem_gib[0] == 128
    assert work.extra["wait_s"].tolist() == [10, 60]
    assert len(work.notes) == 3


def test_ray() -> None:
    work = read(GOLDEN / "ray.json")
    assert rows(work) == [("raysubmit_1", 0, 2, 3600, "vision", "PASSED"), ("raysubmit_2", 1.5, 1, 10, "", "KILLED")]


def test_elasticflow_shockwave_and_pollux(tmp_path: Path) -> None:
    log = tmp_path / "e.csv"
    log.write_text(
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na,10,5,bert,99,64,4,50\n"
    )
    work = read(log)
    assert (rows(work), work.deadline_s.tolist()) == ([("a", 10, 4, 50, "", "UNKNOWN")], [99])
    log.write_text("LM (batch size 10)\tpython\tdir\t--steps\t1\t134583\t2\tgns\t1\t-1.000000\t1418\t7\n")
    assert rows(read(log)) == [("0", 7, 2, 1418, "", "UNKNOWN")]
    log.write_text("name,time,application,num_replicas,batch_size\nx,53,cifar10,6,2048\n")
    with pytest.raises(InputError, match="has no durations"):
        read(log)
    times = tmp_path / "times.csv"
    times.write_text("application,num_replicas,duration_s\ncifar10,6,400\n")
    assert rows(read(log, profile=times)) == [("x", 53, 6, 400, "", "UNKNOWN")]


def test_pollux_durations_come_from_the_profiles_released_with_it(tmp_path: Path) -> None:
    """300 GPU-samples each on 6 GPUs: two passes of 150, of which one synchronises; 100 iterations."""
    log, home = tmp_path / "p.csv", tmp_path / "profiles" / "cifar10"
    log.write_text("name,time,application,num_replicas,batch_size\nx,53,cifar10,6,1800\n")
    home.mkdir(parents=True)
    (home / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n33,200,9,9\n24,100,1.0,0.4\n24,200,2.0,0.6\n"
    )
    (home / "validation-1800.csv").write_text("progress,iteration,metric,grad_sqr,grad_var\n1,40,0,1,1\n2,100,0,1,1\n")
    assert rows(read(log, profile=home.parent)) == [("x", 53, 6, pytest.approx(100 * (2 * 1.5 - 0.5)), "", "UNKNOWN")]
    log.write_text("name,time,application,num_replicas,batch_size\nx,53,bert,6,1800\n")
    with pytest.raises(InputError, match="no profile of 'bert'; there are: cifar10"):
        read(log, profile=home.parent)


@pytest.mark.parametrize("name", ["sacct_P.txt", "sacct_fixed.txt", "sacct.json", "small.swf", "pods.json", "ray.json"])
def test_every_format_converts_and_comes_back(name: str, tmp_path: Path) -> None:
    work = read(GOLDEN / name)
    for target in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        write_csv(work, target, seen=True)
        again = read(target)
        assert rows(again) == rows(work)
        assert again.attempts == work.attempts
        assert again.extra["wait_s"].tolist() == work.extra["wait_s"].tolist()


def sacct_of(work: Workload, start: str = "2020-03-18T04:01:39") -> str:
    """A log as `sacct -P` would print it."""
    zero = np.datetime64(start, "s")
    begun = zero + work.submit_s.round().astype("timedelta64[s]")
    ended = begun + work.duration_s.round().astype("timedelta64[s]")
    lines = ["JobID|Submit|Start|End|ElapsedRaw|State|AllocTRES"]
    for row in range(len(work)):
        tres = f"cpu={4 * work.gpus[row]},gres/gpu:v100={work.gpus[row]},gres/gpu={work.gpus[row]},node=1"
        lines.append(f"{row + 1}|{begun[row]}|{begun[row]}|{ended[row]}|{work.duration_s[row]:.0f}|COMPLETED|{tres}")
        lines.append(
            f"{row + 1}.batch|{begun[row]}|{begun[row]}|{ended[row]}|{work.duration_s[row]:.0f}|COMPLETED|node=1"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.data
def test_a_sacct_file_made_of_venus_runs_like_venus(data: Path, tmp_path: Path) -> None:
    venus = read(data / "traces" / "helios_venus_125k.csv.gz")
    part = venus.take(np.flatnonzero(venus.gpus <= 64)[20_000:20_500])
    path = tmp_path / "sacct.txt"
    path.write_text(sacct_of(part), encoding="utf-8")
    again = read(path)
    cluster = Cluster.parse("12x8")
    ours, theirs = (simulate(Experiment(work, cluster, "srsf", compiled=False)) for work in (again, part))
    assert np.nanmean(theirs.queue_s) > 60.0  # there is something to decide
    assert np.isfinite(theirs.finish_s).all()
    np.testing.assert_allclose(ours.finish_s, theirs.finish_s - part.submit_s[0], atol=0.5)


@pytest.mark.data
@pytest.mark.slow
def test_all_of_venus_runs_like_venus(data: Path, tmp_path: Path) -> None:
    """By the command line, whose kernels are compiled."""
    log, path = data / "traces" / "helios_venus_125k.csv.gz", tmp_path / "sacct.txt"
    path.write_text(sacct_of(read(log)), encoding="utf-8")
    ends_s = []
    for played in (log, path):
        asked = ("--cluster", "133x8", "--policy", "fifo", "--jobs-csv", str(tmp_path / "jobs.csv"))
        program = [sys.executable, "-m", "cotenant.cli.main", "simulate", str(played), *asked]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        jobs = pl.read_csv(tmp_path / "jobs.csv")
        ends_s.append((jobs["finish_s"] - jobs["submit_s"].min()).to_numpy())
    assert len(ends_s[0]) > 100_000
    np.testing.assert_allclose(ends_s[1], ends_s[0], atol=0.5)
