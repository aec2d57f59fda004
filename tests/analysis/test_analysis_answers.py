"""Answers to a log of five jobs, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.analysis import analyze, gather
from cotenant.core.cluster import Cluster
from cotenant.workload.readers.pieces import read_pieces

LOG = """\
job_id,submit_s,submit_time,num_gpus,duration_s,tenant,user,status,attempts,wait_s,fair_share_s,fragmentation_s,servers,gpu_util,failure
a,0,2026-03-02 08:00:00,1,3600,vision,ada,passed,,0,0,0,1,0.9,
b,1800,2026-03-02 08:30:00,1,7200,vision,ada,passed,,600,600,0,1,0.7,
c,3600,2026-03-02 09:00:00,4,3600,nlp,bo,failed,600;600,1200,0,1200,1,0.5,CPU out of memory
d,90000,2026-03-03 09:00:00,8,1800,nlp,bo,killed,,0,0,0,1,0.6,
e,143940,2026-03-03 23:59:00,16,3600,nlp,cy,passed,900,3600,600,3000,2,0.4,
"""


def report_of(text: str, folder: Path, **options: Any) -> dict[str, Any]:
    path = folder / "log.csv"
    path.write_text(text, encoding="utf-8")
    return analyze(gather(read_pieces(path), str(path), folder), **options)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return report_of(LOG, tmp_path_factory.mktemp("log"), replays=False)


def test_sizes_and_tenants(report: dict[str, Any]) -> None:
    assert report["jobs"] == 5
    assert report["gpu_hours"] == pytest.approx(1 + 2 + 4 + 4 + 16)
    one = report["by_size"]["1"]
    assert (one["jobs"], one["gpu_hours"]) == (2, pytest.approx(3))
    assert one["p50_run_s"] == pytest.approx(5400)
    assert one["p95_run_s"] == pytest.approx(3600 + 0.95 * 3600)
    assert {name: row["jobs"] for name, row in report["by_size"].items()} == {"1": 2, "2-4": 1, "5-8": 1, ">8": 1}
    hours = {name: (row["jobs"], row["gpu_hours"]) for name, row in report["by_tenant"].items()}
    assert hours == {"nlp": (3, pytest.approx(24)), "vision": (2, pytest.approx(3))}


def test_day_and_week(report: dict[str, Any]) -> None:
    by_hour = dict(enumerate(report["by_hour"]))
    assert len(by_hour) == 24
    assert {at: jobs for at, jobs in by_hour.items() if jobs} == {8: 2, 9: 2, 23: 1}
    assert report["by_weekday"] == [3, 2, 0, 0, 0, 0, 0]
    assert report["first_submit"] == "2026-03-02 08:00:00"


def test_statuses_and_what_failures_cost(report: dict[str, Any]) -> None:
    ended = {name: (row["jobs"], row["gpu_hours"]) for name, row in report["statuses"].items()}
    assert ended == {"passed": (3, pytest.approx(19)), "killed": (1, pytest.approx(4)), "failed": (1, pytest.approx(4))}
    lost = report["failures"]
    assert lost["gpu_hours"] == pytest.approx(4 + 16 * 900 / 3600)  # all of c, one attempt of e
    assert lost["retries"] == 3
    assert lost["by_reason"] == {
        "CPU out of memory": {"jobs": 1, "users": 1, "p50_run_s": pytest.approx(3600), "gpu_hours": pytest.approx(4)}
    }
    assert "CPU out of memory" in report["advice"]["failures"]
    assert "killed jobs (1, 14.8% of GPU time) count" in report["definitions"]["killed"]


def test_waits_and_their_causes_come_from_the_log_where_it_says(report: dict[str, Any]) -> None:
    waits = report["queueing"]
    assert waits["from"] == "log"
    assert waits["all"]["mean_wait_s"] == pytest.approx(1080)
    assert waits["all"]["over_10_min"] == pytest.approx(2 / 5)
    assert waits["by_tenant"]["vision"]["p50_wait_s"] == pytest.approx(300)
    delay = report["delay"]
    assert delay["from"] == "log"
    assert delay["fragmentation_time_share"] == pytest.approx(4200 / 5400)
    assert {name: row["fragmentation_jobs_share"] for name, row in delay["by_size"].items()} == {
        "1": 0.0, "2-4": 1.0, ">8": 1.0,
    }  # fmt: skip
    assert delay["by_size"][">8"]["fragmentation_time_share"] == pytest.approx(3000 / 3600)


def test_use_spread_and_users(report: dict[str, Any]) -> None:
    use = report["utilisation"]
    assert use["all"]["mean"] == pytest.approx(0.62)
    assert use["by_spread"]["16 GPUs on 2 nodes"]["mean"] == pytest.approx(0.4)
    assert use["by_status"]["killed"]["mean"] == pytest.approx(0.6)
    assert report["spread"][">8"]["mean"] == 2
    people = report["users"]
    assert people["users"] == 3
    assert people["top_5_percent_gpu_hours_share"] == pytest.approx(16 / 27)
    assert next(iter(people["top"])) == "cy"


def test_only_what_is_missing_is_called_lacking(report: dict[str, Any], tmp_path: Path) -> None:
    assert report["lacking"] == ["first start to last end", "cluster", "models"]
    bare = report_of("job_id,submit_s,num_gpus,duration_s\n1,0,1,60\n2,86400,2,60\n", tmp_path, replays=False)
    assert {"tenants", "users", "status", "attempts", "failure reasons", "queueing", "delay causes", "utilisation",
            "spread", "dates", "cluster", "models"} <= set(bare["lacking"])  # fmt: skip
    assert set(bare["lacking"]) == set(bare["lacking_means"])
    unknown = ("statuses", "failures", "users", "utilisation", "spread", "queueing", "delay", "savings", "by_weekday")
    assert [bare[name] for name in unknown] == [None] * len(unknown)
    assert bare["by_tenant"] == {}
    assert bare["by_hour"][0] == 2
    assert "not say which jobs were killed" in bare["definitions"]["killed"]
    assert set(bare["advice"]) == {"runs", "cycles", "congestion"}


def test_durations_that_were_cut_are_called_so(tmp_path: Path) -> None:
    rows = "".join(f"{at},{at},1,{172800 if at % 2 else 50 + at}\n" for at in range(40))
    report = report_of("job_id,submit_s,num_gpus,duration_s\n" + rows, tmp_path, replays=False)
    assert "20 jobs last exactly 172,800 s" in report["lacking_means"]["true length of the longest jobs"]


def test_every_answer_has_its_advice(tmp_path: Path) -> None:
    report = report_of(LOG, tmp_path, cluster=Cluster.parse("4x8"))
    answers = ("queueing", "delay", "statuses", "failures", "users", "utilisation", "spread", "congestion")
    assert {*answers, "runs", "tenants", "cycles"} == set(report["advice"])
    assert all(text.endswith(".") for text in report["advice"].values())
    changes = report["savings"]["changes"]
    assert list(changes) == ["backfill", "consolidation", "more_nodes", "sharing"]
    assert all(row["advice"].endswith(".") for row in changes.values())
    assert "cluster" not in report["lacking"]


HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,16,64,2,COMPLETED,2020-04-01 10:00:00,2020-04-01 10:10:00,2020-04-01 11:10:00,3600,600
2,u2,vcB,1,4,1,FAILED,2020-04-04 23:30:00,2020-04-04 23:30:00,2020-04-04 23:40:00,600,0
3,u2,vcB,0,4,1,COMPLETED,2020-04-04 23:30:00,2020-04-04 23:30:00,2020-04-04 23:40:00,600,0
"""


def test_helios_tells_waits_and_spread(tmp_path: Path) -> None:
    report = report_of(HELIOS, tmp_path, replays=False)
    assert report["jobs"] == 2
    assert report["queueing"]["by_size"][">8"]["mean_wait_s"] == 600
    assert report["spread"][">8"]["mean"] == 2
    assert report["by_weekday"] == [0, 0, 1, 0, 0, 1, 0]
    assert "from its start to its end" in report["definitions"]["duration"]


PHILLY = """\
[{"status": "Pass", "vc": "v", "jobid": "a", "user": "u", "submitted_time": "2017-10-02 23:00:00", "attempts": [
  {"start_time": "2017-10-02 23:10:00", "end_time": "2017-10-02 23:20:00", "detail": [{"ip": "m1", "gpus": ["g0"]}]},
  {"start_time": "2017-10-03 00:20:00", "end_time": "2017-10-03 01:00:00", "detail": [
    {"ip": "m1", "gpus": ["g0", "g1"]}, {"ip": "m2", "gpus": ["g0", "g1"]}]}]}]
"""


def test_philly_tells_both_durations(tmp_path: Path) -> None:
    report = report_of(PHILLY, tmp_path, replays=False)
    assert report["run_s"]["mean"] == 50 * 60  # the sum of two attempts
    assert report["first_to_last_s"]["mean"] == 110 * 60
    assert report["queueing"]["all"]["mean_wait_s"] == 600
    assert report["spread"]["2-4"]["mean"] == 2
    assert report["failures"]["gpu_hours"] == pytest.approx(4 * 600 / 3600)
    assert [at for at, jobs in enumerate(report["by_hour"]) if jobs] == [23]
    assert "the sum of all attempts; first start to last end is given beside it" in report["definitions"]["duration"]
    assert not {"queueing", "spread", "users", "status", "attempts", "first start to last end"} & set(report["lacking"])
