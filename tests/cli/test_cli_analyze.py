"""`cotenant analyze`: what it prints, what it writes, and what it says of logs that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import cotenant, write_log

HEADER = "job_id,submit_s,num_gpus,duration_s,tenant,user,status"
ROWS = [
    f"{at},{at * 600},{(1, 2, 8)[at % 3]},{1000 + 700 * (at % 7)},{'ab'[at % 2]},u{at % 5},"
    f"{('passed', 'failed', 'killed')[at % 3]}"
    for at in range(40)
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.csv", *ROWS, header=HEADER)


def test_terminal_json_and_page_say_the_same(log: Path, tmp_path: Path) -> None:
    ran = cotenant("analyze", log, "--cluster", "2x8", "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert (ran.code, ran.err) == (0, "")
    report = json.loads((tmp_path / "r.json").read_text())
    assert {"jobs", "gpu_hours", "by_size", "by_tenant", "by_hour", "lacking"} <= set(report)
    assert set(report["by_size"]) == {"1", "2-4", "5-8", ">8"}
    assert {"jobs", "gpu_hours", "p50_run_s", "p95_run_s"} <= set(report["by_size"]["1"])
    assert len(report["by_hour"]) == 24
    assert sum(report["by_hour"]) == report["jobs"] == 40
    page = (tmp_path / "r.html").read_text()
    for said in (*report["advice"].values(), report["definitions"]["duration"], report["definitions"]["killed"]):
        assert said in ran.out
        assert said.replace("'", "&#x27;").replace(">", "&gt;") in page
    for means in report["lacking_means"].values():
        assert means in ran.out
    for slug in ("runs", "tenants", "queueing", "delay", "statuses", "failures", "users", "cycles", "savings"):
        assert f'<section id="{slug}">' in page
    assert "http://" not in page.split("<script", 1)[0]


def test_json_alone_on_standard_output(log: Path) -> None:
    ran = cotenant("analyze", log, "--no-replays", "--json", "-")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert (report["savings"], report["queueing"]) == (None, None)
    assert "queueing" in report["lacking"]


def test_generators_are_logs_too() -> None:
    ran = cotenant("analyze", "helios-like:jobs=60,seed=1,load=1", "--cluster", "2x8", "--no-replays")
    assert ran.code == 0
    assert "60 jobs" in ran.out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.csv", None, "no such file"),
        ("empty.csv", "", "is empty"),
        ("words.csv", "once,upon,a\ntime,there,was\n", "unknown format"),
        ("header.csv", "job_id,submit_s,num_gpus,duration_s\n", "no jobs below it"),
        ("cell.csv", "job_id,submit_s,num_gpus,duration_s\n1,0,two,5\n", "line 2: num_gpus is 'two'"),
        ("cut.csv.gz", "\x1f\x8bnot really", "truncated or corrupt"),
    ],
)
def test_bad_logs_are_one_line(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    ran = cotenant("analyze", tmp_path / name)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_folder_without_a_journal_and_a_target_that_cannot_be_written(log: Path, tmp_path: Path) -> None:
    ran = cotenant("analyze", tmp_path)
    assert ran.code == 2
    assert "there is no journal.db in it" in ran.err
    ran = cotenant("analyze", log, "--html", tmp_path / "no" / "r.html")
    assert ran.code == 2
    assert "its folder does not exist" in ran.err
