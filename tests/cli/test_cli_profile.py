"""`cotenant profile` on real processes without a GPU: figures, the file, pairs, going on, and what is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_runner import ROOT, cotenant

NUMPY = f"{sys.executable} {ROOT / 'examples' / 'numpy_train.py'} --steps 1000000 --step-time 0.01"
PLAIN = f"{sys.executable} {ROOT / 'examples' / 'cpu_steps.py'} --steps 1000000 --cpu 0.001 --wait 0.01"


@pytest.fixture(autouse=True)
def _from_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


@pytest.mark.slow
def test_one_command_alone(tmp_path: Path) -> None:
    words = ("profile", "--name", "net", "--budget", "20", "--measure", "suspend,restart", "--json", "--")
    ran = cotenant(*words, *NUMPY.split(), cwd=tmp_path)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    found = json.loads((tmp_path / "profile.json").read_text())["models"]["net"]["on"]["gpu"]
    assert told["models"]["net"]["on"]["gpu"] == found
    assert 20 < found["steps_per_s"] < 101
    assert found["batch"] == 32
    for name in ("start_s", "save_s", "restore_s", "suspend_s", "resume_s", "exit_s", "mem_gib", "cores", "spread"):
        assert 0 <= found[name] < 60, name
    assert told["report"]["left"] == 0
    assert "no driver" in told["report"]["notes"]["net"][0]
    assert "steps/s" in ran.err
    again = cotenant(*words, *NUMPY.split(), cwd=tmp_path)  # known: nothing is run
    assert again.code == 0
    assert json.loads(again.out)["report"]["seconds"] == {}


@pytest.mark.slow
def test_a_mix_with_batches_and_pairs_serves_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text(
        f"- {{model: net, run: '{NUMPY}', batch: {{size: 32}}}}\n- {{model: plain, run: '{PLAIN}'}}\n"
        "- {model: broken, run: 'exit 3'}\n"
    )
    words = ("profile", "--jobs", "mix.yaml", "--budget", "14", "--pairs", "--seconds", "0.5", "--measure", "batches")
    ran = cotenant(*words, cwd=tmp_path)
    assert ran.code == 1
    assert "'broken' ended with exit code 3 without ever calling cotenant.runtime" in ran.out
    data = json.loads((tmp_path / "profile.json").read_text())
    net, plain = (data["models"][name]["on"]["gpu"] for name in ("net", "plain"))
    assert [point["parts"] for point in net["sub_batches"]] == [2, 4]
    assert [point["batch"] for point in net["batches"]] == [8, 16]
    assert "sub_batches" not in plain
    assert {(pair["a"], pair["b"]) for pair in data["pairs"]} == {("net", "plain"), ("net", "net"), ("plain", "plain")}
    assert all(0.2 < pair[side] < 3 for pair in data["pairs"] for side in ("a_speed", "b_speed"))
    assert "does not save checkpoints" in ran.out
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,num_gpus,model,steps\na,0,1,net,5000\nb,1,1,plain,5000\n")
    played = cotenant(
        "simulate", "jobs.csv", "--cluster", "1x1", "--profile", "profile.json", "--policy", "sjf-bsbf",
        "--costs", "profile", "--json", "-", cwd=tmp_path,
    )  # fmt: skip
    assert played.code == 0, played.err
    assert json.loads(played.out)["makespan_s"] < 5000 / net["steps_per_s"] + 5000 / plain["steps_per_s"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give a command after '--', or --jobs FILE"),
        (("--", "true"), "'true' ended with exit code 0 without ever calling cotenant.runtime"),
        (("--measure", "all", "--", "true"), "unknown --measure 'all'"),
        (("--batches", "8,x", "--", "true"), "--batches 8,x: write batch sizes"),
        (("--least", "3", "--most", "2", "--", "true"), "cores from 3 to 2"),
        (("--out", "curves.json", "--", "true"), "curves.json is there and is not a profile file"),
        (("--beside", "nobody", "--", "true"), "unknown model to measure pairs with 'nobody'"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "curves.json").write_text('{"curves": {}}')
    ran = cotenant("profile", *words, cwd=tmp_path)
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "profile.json").exists()


def test_a_command_that_ends_too_early_says_so(tmp_path: Path) -> None:
    short = [sys.executable, str(ROOT / "examples" / "cpu_steps.py"), "--steps", "1", "--cpu", "0.001"]
    ran = cotenant("profile", "--budget", "3", "--", *short, cwd=tmp_path)
    assert ran.code == 2
    assert "made too few steps to tell its speed and then ended" in ran.err
