from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_outcomes import outcome

from cotenant.report.jobs_csv import write_jobs_csv

COLUMNS = (
    "job_id", "submit_s", "num_gpus", "duration_s", "tenant", "model", "first_start_s", "finish_s", "jct_s", "queue_s",
    "preemptions", "restarts", "lost_gpu_s", "status",
)  # fmt: skip


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_job_is_a_row_and_floats_read_back_exactly(tmp_path: Path) -> None:
    run = outcome(jobs=300, unfinished=2)
    write_jobs_csv(run, tmp_path / "a.csv")
    rows = read(tmp_path / "a.csv")
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 300
    assert [float(row["submit_s"]) for row in rows] == run.workload.submit_s.tolist()
    assert [float(row["jct_s"]) for row in rows[:-2]] == run.jct_s[:-2].tolist()
    assert [float(row["queue_s"]) for row in rows] == run.queue_s.tolist()
    assert [int(row["num_gpus"]) for row in rows] == run.workload.gpus.tolist()
    assert [row["job_id"] for row in rows] == run.workload.job_id.tolist()
    assert {row["tenant"] for row in rows} == {"", "vision", "speech, text"}
    assert [row["status"] for row in rows[-3:]] == ["finished", "unfinished", "not-started"]
    assert (rows[-1]["first_start_s"], rows[-1]["finish_s"], rows[-1]["jct_s"]) == ("", "", "")


def test_bytes_are_stable(tmp_path: Path) -> None:
    write_jobs_csv(outcome(), tmp_path / "a.csv")
    write_jobs_csv(outcome(), tmp_path / "b.csv")
    data = (tmp_path / "a.csv").read_bytes()
    assert data == (tmp_path / "b.csv").read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"\n")


def test_zero_has_one_spelling_and_odd_ids_survive(tmp_path: Path) -> None:
    run = outcome(jobs=3)
    work = replace(run.workload, job_id=np.array(['a,"b"', "line\nbreak", "ü"], dtype=object))
    write_jobs_csv(replace(run, workload=work, queue_s=np.array([-0.0, 0.0, 1e-9])), tmp_path / "a.csv")
    rows = read(tmp_path / "a.csv")
    assert [row["job_id"] for row in rows] == ['a,"b"', "line\nbreak", "ü"]
    assert rows[0]["queue_s"] == rows[1]["queue_s"]
    assert float(rows[2]["queue_s"]) == 1e-9


def test_no_jobs_is_a_header(tmp_path: Path) -> None:
    run = outcome(jobs=3)
    none = np.zeros(0, np.int64)
    empty = replace(
        run,
        workload=run.workload.take(none),
        first_start_s=np.zeros(0),
        finish_s=np.zeros(0),
        queue_s=np.zeros(0),
        preemptions=none,
        restarts=none,
        lost_gpu_s=np.zeros(0),
        measured=np.zeros(0, np.bool_),
    )
    write_jobs_csv(empty, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_a_bad_path_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        write_jobs_csv(outcome(jobs=3), tmp_path / "missing" / "a.csv")
