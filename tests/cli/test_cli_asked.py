"""What a log may ask of order and place, and a run that cannot end, seen from the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from cli_runner import HEADER, cotenant, write_log


def starts(folder: Path, log: Path, *options: str) -> list[float]:
    ran = cotenant("simulate", log, *options, "--costs", "none", "--jobs-csv", folder / "jobs.csv")
    assert ran.code == 0, ran.err
    with (folder / "jobs.csv").open(newline="") as file:
        return [float(row["first_start_s"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "las"])
def test_priority_of_a_log_leads_the_order(policy: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,4,10,", "b,1,4,5,-1", "c,1,4,20,7", header=f"{HEADER},priority")
    preempts = policy in ("srtf", "las")
    assert starts(tmp_path, log, "--cluster", "1x4", "--policy", policy) == [0, 30, 1 if preempts else 10]


def test_type_and_nodes_of_a_log_are_kept(tmp_path: Path) -> None:
    rows = ("a,0,2,10,k80,", "b,0,2,10,k80,2", "c,0,2,10,,2")
    log = write_log(tmp_path / "log.csv", *rows, header=f"{HEADER},gpu_type,nodes")
    assert starts(tmp_path, log, "--cluster", "2x2:v100+2x2:k80", "--policy", "backfill") == [0, 10, 0]
    ran = cotenant("simulate", log, "--cluster", "2x2:v100")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "job 'a' asks for 2 GPUs of type 'k80', which cluster '2x2:v100' cannot hold (2 such jobs)" in ran.err


def test_a_run_that_would_never_end_is_one_line(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,1,100", "b,0,1,100")
    ran = cotenant("simulate", log, "--cluster", "1x1", "--policy", "las:weigh=false", "--round", "5", "--costs", "10")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    for word in ("job '", "10 s", "'las:weigh=false'", "--round", "--costs"):
        assert word in ran.err
