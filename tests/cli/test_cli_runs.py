"""What the verbs promise when all is well."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import cotenant, script

WORKLOAD = "philly-like:jobs=150,seed=3,load=1.2"
CLUSTER = ("--cluster", "2x8")
FIELDS = {
    "policy",
    "placement",
    "cluster",
    "jobs",
    "finished",
    "avg_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "max_jct_s",
    "avg_queue_s",
    "makespan_s",
    "gpu_utilization",
    "preemptions",
    "lost_gpu_s",
    "fairness_jain",
    "events",
    "decisions",
    "wall_s",
    "peak_rss_mib",
    "seed",
    "version",
}
OF_THE_MACHINE = ("wall_s", "peak_rss_mib")


def _without_machine(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in OF_THE_MACHINE} for row in summaries]


def test_json_has_the_promised_fields_and_stands_alone_on_standard_output(log: Path) -> None:
    ran = script("simulate", log, "--cluster", "1x4", "--policy", "srsf", "--json", "-")
    assert ran.code == 0
    summary = json.loads(ran.out)
    assert FIELDS - set(summary) == set()
    assert (summary["policy"], summary["placement"], summary["cluster"]) == ("srsf", "consolidated", "1x4")
    assert summary["jobs"] == summary["finished"] == 5
    assert summary["seed"] == 0
    assert ran.err == ""


def test_json_to_a_file_leaves_the_table_on_standard_output(log: Path, tmp_path: Path) -> None:
    ran = cotenant("simulate", log, "--cluster", "1x4", "--json", tmp_path / "run.json")
    assert ran.code == 0
    assert "5 of 5 jobs finished" in ran.out
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["finished"] == 5


def test_fifo_by_hand(log: Path, tmp_path: Path) -> None:
    """a runs 0-100; b needs the whole node and blocks the others until 150; then c, d, e start together."""
    cotenant("simulate", log, "--cluster", "1x4", "--jobs-csv", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8")))
    assert {row["job_id"]: float(row["finish_s"]) for row in rows} == {"a": 100, "b": 150, "c": 180, "d": 160, "e": 155}


def test_jobs_csv_has_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    policy, failing = "random", ("--fail-nodes", "mtbf=400000,mttr=3600")
    for seed in ("1", "2"):
        command = ("simulate", WORKLOAD, *CLUSTER, "--policy", policy, "--estimator", "noisy", *failing)
        ran = script(*command, "--jobs-csv", tmp_path / f"{seed}.csv", PYTHONHASHSEED=seed)
        assert ran.code == 0
    first = (tmp_path / "1.csv").read_bytes()
    assert first.count(b"\n") == 151
    assert first == (tmp_path / "2.csv").read_bytes()


def test_compare_is_the_same_whatever_the_workers(tmp_path: Path) -> None:
    outputs = {}
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        files = ("--html", "report.html", "--json", "runs.json", "--jobs-csv", "jobs")
        command = ("compare", WORKLOAD, *CLUSTER, "--policies", "fifo,srsf,tiresias-l:queues=3", *files)
        ran = cotenant(*command, "--workers", str(workers), cwd=folder)
        assert ran.code == 0
        summaries = _without_machine(json.loads((folder / "runs.json").read_text(encoding="utf-8")))
        jobs = {path.name: path.read_bytes() for path in sorted((folder / "jobs").iterdir())}
        outputs[workers] = (ran.out, summaries, (folder / "report.html").read_bytes(), jobs)
    assert outputs[1] == outputs[2]
    assert len(outputs[1][3]) == 3
    assert b"<script src=" not in outputs[1][2]


def test_compare_takes_seeds_and_loads() -> None:
    command = ("compare", WORKLOAD, *CLUSTER, "--policies", "fifo,srsf", "--seeds", "0-1", "--loads", "0.7,1.3")
    command += ("--workers", "1")
    ran = cotenant(*command)
    assert ran.code == 0
    assert "95 % confidence interval over 2 seeds" in ran.out
    table, _, differences = ran.out.partition("against fifo")
    assert sum(line.split()[:1] in (["fifo"], ["srsf"]) for line in table.splitlines()) == 4
    assert sum(line.split()[:1] == ["srsf"] for line in differences.splitlines()) == 2
    parsed = json.loads(cotenant(*command, "--json", "-").out)
    assert [(row["policy"], row["seed"], row["load"]) for row in parsed] == [
        (policy, seed, load) for load in (0.7, 1.3) for policy in ("fifo", "srsf") for seed in (0, 1)
    ]
    assert all(row["offered_load"] == pytest.approx(row["load"]) for row in parsed)


def test_nothing_is_drawn_in_a_pipe(log: Path) -> None:
    ran = script("compare", log, "--cluster", "1x4", "--policies", "fifo,srsf")
    assert ran.code == 0
    assert ran.err == ""
    assert "\x1b" not in ran.out
    assert "\r" not in ran.out


def test_measure_and_until_cut_a_run(log: Path) -> None:
    measured = json.loads(cotenant("simulate", log, "--cluster", "1x4", "--measure", "0-1", "--json", "-").out)
    assert (measured["jobs"], measured["finished"], measured["avg_jct_s"]) == (2, 2, (100 + 140) / 2)
    cut = json.loads(cotenant("simulate", log, "--cluster", "1x4", "--until", "120", "--json", "-").out)
    assert (cut["jobs"], cut["finished"]) == (5, 1)


def test_generate_then_describe(tmp_path: Path) -> None:
    target = tmp_path / "made.csv.gz"
    spec = "helios-like:jobs=500,seed=2,load=0.8"
    made = cotenant("generate", spec, "--cluster", "8x8", "--out", target)
    assert made.code == 0
    assert "500 jobs" in made.out
    facts = json.loads(cotenant("traces", "describe", target, "--cluster", "8x8", "--json").out)
    direct = json.loads(cotenant("traces", "describe", spec, "--cluster", "8x8", "--json").out)
    assert facts["jobs"] == 500
    assert facts["offered_load"] == pytest.approx(0.8, rel=1e-6)
    same = ("jobs", "span_s", "gpu_hours", "sizes", "duration_s", "status", "tenants", "models")
    assert {key: facts[key] for key in same} == {key: direct[key] for key in same}


def test_generate_prints_a_log(tmp_path: Path) -> None:
    printed = cotenant("generate", "gavel-like:jobs=20,gpus=16")
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert len(rows) == 20
    assert {"job_id", "submit_s", "num_gpus", "duration_s", "model"} <= set(rows[0])


def test_mixed_cluster_without_any_file(log: Path) -> None:
    cluster = ("--cluster", "2x8:h200+2x8:a100+2x8:v100", "--profile", "h200")
    made = json.loads(cotenant("simulate", "gavel-like:jobs=60,models=h200", *cluster, "--json", "-").out)
    assert made["finished"] == 60
    ran = cotenant("simulate", log, *cluster, "--models", "h200:seed=1", "--json", "-")
    assert ran.code == 0
    assert "jobs have no model" in ran.err
    assert "does not know" in cotenant("simulate", "philly-like:jobs=60", *cluster).err


@pytest.mark.parametrize(
    ("job", "at", "cause"),
    [
        ("b", 50, "waiting for capacity"),
        ("d", 50, "held back by policy"),
        ("a", 50, "running"),
        ("a", 120, "finished"),
        ("e", 5, "not submitted yet"),
    ],
)
def test_why(job: str, at: int, cause: str, log: Path) -> None:
    ran = cotenant("why", log, job, "--at", str(at), "--cluster", "1x4", "--json")
    assert ran.code == 0
    reason = json.loads(ran.out)
    assert (reason["job"], reason["cause"]) == (job, cause)
    if cause == "waiting for capacity":
        assert (reason["need_gpus"], reason["free_gpus"], reason["position"]) == (4, 2, 1)
    if cause == "held back by policy":
        assert reason["ahead"][0] == "b"


def test_why_in_words(log: Path) -> None:
    ran = cotenant("why", log, "b", "--at", "50", "--cluster", "1x4")
    assert ran.out.startswith("b at 50 s under fifo: waiting for capacity: it needs 4 GPUs")
    assert len(ran.out.splitlines()) == 1


def test_plan_finds_the_fewest_nodes() -> None:
    command = ("plan", "philly-like:jobs=200,seed=1,load=3", "--goal", "p95_queue<10m", "--policy", "fifo")
    assert cotenant(*command, "--vary", "load=0.5-1").code == 2
    ran = cotenant(*command, "--vary", "nodes=1-8", "--json")
    assert ran.code == 0, ran.err
    assert "nodes have 8 GPUs each" in ran.err
    found = json.loads(ran.out)
    met = {row["nodes"]: row["met"] for row in found["looks"]}
    assert 1 < found["nodes"] <= 8
    assert met[found["nodes"]]
    assert not met[found["nodes"] - 1]


def test_plan_finds_the_least_quota(tmp_path: Path) -> None:
    """Eight jobs of `a` come at once, each for 100 s on 1 GPU, beside two of `b`; with q GPUs the last of `a` ends its
    wait after 100 * (8 / q - 1) s."""
    log = tmp_path / "log.csv"
    rows = "".join(f"a{n},0,1,100,a\n" for n in range(8)) + "".join(f"b{n},0,1,100,b\n" for n in range(2))
    log.write_text("job_id,submit_s,num_gpus,duration_s,tenant\n" + rows)
    for key in ("quota.a", "guaranteed.a"):
        ran = cotenant("plan", log, "--cluster", "1x8", "--goal", "max_queue<150", "--vary", f"{key}=1-8", "--json")
        assert ran.code == 0, ran.err
        found = json.loads(ran.out)
        assert found[key] == (4 if key == "quota.a" else 1), "a limit binds; a guarantee of 1 leaves the rest to both"
        assert len(found["looks"]) <= 4
    ran = cotenant(
        "compare", log, "--cluster", "1x8", "--policies", "fifo,srsf", "--vary", "quota.a=2,8", "--json", "-"
    )
    assert [row["varied"] for row in json.loads(ran.out)] == ["quota.a=2", "quota.a=2", "quota.a=8", "quota.a=8"]
