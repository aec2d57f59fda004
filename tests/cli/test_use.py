"""What new users stumbled over, point by point; docs/design/0012-use.md names them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runner import HEADER, ROOT, cotenant, write_log

from cotenant.core.errors import InputError
from cotenant.sim.workers import in_processes

SLOW = (
    "import time\nfrom cotenant.policies import PriorityPolicy\n\n\n"
    "class Slow(PriorityPolicy):\n    def priority(self, view):\n"
)


def _slow_policy(folder: Path, body: str) -> None:
    (folder / "slow.py").write_text(SLOW + body + "        return view.gpus\n", encoding="utf-8")


def _comparing(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cotenant.cli.main", "compare", "jobs.csv", "--cluster", "1x4", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _wait_for(path: Path, deadline_s: float = 60.0) -> None:
    until = time.monotonic() + deadline_s
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.05)


def test_ctrl_c_ends_compare_at_once_and_shows_what_is_done(log: Path, tmp_path: Path) -> None:
    """The first run is quick, the second never ends: a mark says that it has begun."""
    _slow_policy(tmp_path, "        open('begun', 'w').close()\n        time.sleep(600)\n")
    going = _comparing(tmp_path, "--policies", "fifo,slow.py:Slow", "--workers", "1", "--json", "done.json")
    _wait_for(tmp_path / "begun")
    began = time.monotonic()
    going.send_signal(signal.SIGINT)
    out, err = going.communicate(timeout=30)
    assert time.monotonic() - began < 5.0  # a second, but for a machine that is busy with other things
    assert going.returncode == 130
    assert "fifo" in out
    assert "1 of 2 runs are done" in err
    assert [run["policy"] for run in json.loads((tmp_path / "done.json").read_text())] == ["fifo"]


def test_ctrl_c_ends_workers_too(log: Path, tmp_path: Path) -> None:
    _slow_policy(
        tmp_path, "        open(f'begun-{__import__(\"os\").getpid()}', 'w').close()\n        time.sleep(600)\n"
    )
    going = _comparing(tmp_path, "--policies", "slow.py:Slow,fifo,srtf", "--workers", "2")
    until = time.monotonic() + 60
    while not (pids := [int(path.name[6:]) for path in tmp_path.glob("begun-*")]) and time.monotonic() < until:
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    going.communicate(timeout=30)
    assert going.returncode == 130
    assert pids
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_a_killed_worker_is_told_and_its_run_repeated(tmp_path: Path) -> None:
    told: list[str] = []

    def run(at: int) -> int:
        mark = tmp_path / f"tried-{at}"
        if at == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return at * at

    assert sorted(in_processes(run, range(3), 2, told.append)) == [(0, 0), (1, 1), (2, 4)]
    assert told == ["run 2 of 3 is repeated: its process was ended by SIGKILL"]


def test_a_worker_that_always_dies_is_one_line() -> None:
    def run(at: int) -> int:
        os._exit(7)

    with pytest.raises(InputError, match=r"run 1 of 1: its process ended with exit code 7, 2 times"):
        list(in_processes(run, range(1), 1))


def test_seeds_that_change_nothing_have_no_intervals(log: Path) -> None:
    ran = cotenant("compare", log, "--cluster", "1x4", "--policies", "fifo,srtf", "--seeds", "0-2")
    assert ran.code == 0
    assert "±" not in ran.out
    assert "confidence" not in ran.out
    assert "all seeds gave the same runs" in ran.err


def test_seeds_that_change_something_have(log: Path) -> None:
    noisy = ("--estimator", "noisy:error=2")
    ran = cotenant("compare", log, "--cluster", "1x4", "--policies", "srtf,sjf", "--seeds", "0-5", *noisy)
    assert "±" in ran.out
    assert "paired t over 6 seeds" in ran.out


def test_a_file_of_jobs_is_not_hidden(log: Path, tmp_path: Path) -> None:
    _slow_policy(tmp_path, "")
    ran = cotenant("compare", log, "--cluster", "1x4", "--policies", "./slow.py:Slow", "--jobs-csv", "jc", cwd=tmp_path)
    assert ran.code == 0
    assert [path.name for path in (tmp_path / "jc").iterdir()] == ["slow.py_Slow.csv"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Raises", "mine.py line 4: AttributeError"),
        ("Divides", "mine.py line 4: ZeroDivisionError"),
        ("Texts", "what it returns cannot be used: ValueError"),
        ("NoMethod", "'NoMethod' in mine.py lacks priority()"),
        ("NoRound", "round_s is 0"),
    ],
)
def test_a_users_policy_is_blamed_by_file_and_line(name: str, words: str, log: Path, tmp_path: Path) -> None:
    body = {
        "Raises": "def priority(self, view):\n        return view.nothing",
        "Divides": "def priority(self, view):\n        return 1 // 0",
        "Texts": "def priority(self, view):\n        return ['a'] * len(view.rows)",
        "NoMethod": "pass",
        "NoRound": "round_s = 0\n    def priority(self, view):\n        return view.gpus",
    }[name]
    text = f"from cotenant.policies import PriorityPolicy\nclass {name}(PriorityPolicy):\n    {body}\n"
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    for verb in (("simulate", "--policy"), ("compare", "--policies")):
        ran = cotenant(verb[0], log, "--cluster", "1x4", verb[1], f"mine.py:{name}", cwd=tmp_path)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert words in ran.err


def test_cores_that_nobody_limits_are_told(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,1,10,8", header=HEADER + ",cpus")
    ran = cotenant("simulate", log, "--cluster", "1x4")
    assert "jobs ask for cores, but cluster '1x4' names none" in ran.err
    ran = cotenant("simulate", log, "--cluster", "1x4:v100+1x4:p100/cpu=96")
    assert "jobs ask for cores, but v100 nodes of cluster" in ran.err
    assert "note" not in cotenant("simulate", log, "--cluster", "1x4/cpu=96").err


def test_a_job_that_lacks_cores_is_told_so(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,1,10,200", header=HEADER + ",cpus")
    assert "1 GPUs and 200 cores" in cotenant("simulate", log, "--cluster", "1x4/cpu=96").err


def test_times_are_typed_the_same_everywhere(log: Path) -> None:
    base = ("simulate", log, "--cluster", "1x4", "--json", "-")
    assert json.loads(cotenant(*base, "--until", "1m").out)["finished"] == 0
    assert json.loads(cotenant(*base, "--until", "2h", "--round", "6m").out)["finished"] == 5
    assert "under fifo" in cotenant("why", log, "b", "--at", "1m", "--cluster", "1x4").out


def test_json_is_a_flag_too(log: Path) -> None:
    assert json.loads(cotenant("simulate", log, "--cluster", "1x4", "--json").out)["finished"] == 5
    assert len(json.loads(cotenant("compare", log, "--json", "--cluster", "1x4", "--policies", "fifo,sjf").out)) == 2


def test_near_misses_get_a_suggestion(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,1,10,x", header=HEADER + ",tennant")
    assert "tennant (did you mean 'tenant'?)" in cotenant("simulate", log, "--cluster", "1x4").err
    log = write_log(tmp_path / "log.csv", "a,0,1,10", header=HEADER.replace("num_gpus", "num_gpu"))
    assert "'num_gpus' (there is 'num_gpu')" in cotenant("simulate", log, "--cluster", "1x4").err
    assert "did you mean 'philly-like'" in cotenant("simulate", "philly-lik:jobs=5", "--cluster", "1x4").err


def test_statuses_of_slurm_are_known(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "a,0,1,10,CANCELLED by 1000", "b,0,1,10,COMPLETED", header=HEADER + ",status")
    ran = cotenant("simulate", log, "--cluster", "1x4", "--json", "-")
    assert json.loads(ran.out)["ended_killed"] == 1


def test_policies_may_be_given_in_several_options(log: Path) -> None:
    ran = cotenant("compare", log, "--cluster", "1x4", "--policies", "fifo", "--policies", "srtf,las", "--json", "-")
    assert [run["policy"] for run in json.loads(ran.out)] == ["fifo", "srtf", "las"]


def test_the_command_in_a_report_can_be_pasted(log: Path, tmp_path: Path) -> None:
    odd = tmp_path / "my jobs.csv"
    odd.write_bytes(log.read_bytes())
    cotenant("compare", odd, "--cluster", "1x4", "--policies", "fifo,srtf", "--html", tmp_path / "r.html")
    assert "my jobs.csv&#x27; --cluster 1x4" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_card_does_not_reward_waste() -> None:
    from cotenant.report.html import render_html
    from cotenant.report.table import comparison_rows

    sys.path.insert(0, str(ROOT / "tests" / "report"))
    try:
        from synthetic_outcomes import outcome
    finally:
        sys.path.pop(0)
    wasteful, thrifty = outcome("wasteful", goodput=0.5), outcome("thrifty", goodput=1.0)
    wasteful.summary["gpu_utilization"] = 0.9
    rows = comparison_rows([wasteful, thrifty])
    assert rows[1]["useful_utilization"] > rows[0]["useful_utilization"]
    text = render_html([wasteful, thrifty], title="t", command="c", rows=rows)
    card = text[text.index("Highest useful GPU utilisation") :]
    assert card.index("thrifty") < card.index("wasteful")


def test_one_quoted_word_is_a_line_for_the_shell() -> None:
    from cotenant.cli.command import job_of

    assert job_of(["echo $X"])["run"] == "echo $X"
    assert job_of(["python", "my train.py"])["run"] == "python 'my train.py'"


def test_help_names_every_released_simulator_and_is_not_cut() -> None:
    shown = cotenant("simulate", "--help").out
    assert "chronus" in shown
    assert "..." not in cotenant("--help").out.split("Commands:")[1]


def test_what_a_log_may_be_is_standard_input(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cotenant.cli.main", "simulate", "-", "--cluster", "1x4", "--json", "-"],
        input=log.read_bytes(), capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert json.loads(done.stdout)["finished"] == 5


def test_a_sweep_goes_on_where_it_was(log: Path, tmp_path: Path) -> None:
    first = ("compare", log, "--cluster", "1x4", "--keep", tmp_path / "kept", "--json", "-", "--policies")
    one = cotenant(*first, "fifo")
    both = cotenant(*first, "fifo,srtf")
    assert "1 of 2 runs are taken" in both.err
    plain = json.loads(cotenant(*first[:4], "--policies", "fifo,srtf", "--json", "-").out)
    for ours, theirs in zip(json.loads(both.out), plain, strict=True):
        for name in ("wall_s", "peak_rss_mib"):
            ours.pop(name), theirs.pop(name)
        assert ours == theirs
    assert json.loads(one.out)[0]["avg_jct_s"] == plain[0]["avg_jct_s"]
    assert "taken" not in cotenant(*first, "fifo", "--costs", "none").err  # another experiment


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "jobs.csv", "--cluster", "1x4"),
        ("compare", "jobs.csv", "--cluster", "1x4", "--policies", "fifo", "--workers", "1"),
        ("plan", "jobs.csv", "--cluster", "1x4", "--goal", "p95_queue<1h", "--vary", "nodes=1-2"),
        ("analyze", "jobs.csv", "--cluster", "1x4"),
    ],
    ids=lambda words: words[0],
)
def test_verbs_that_play_say_that_they_compile(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bar says first is worked out from how large the work is and whether its loops are compiled."""
    from cotenant.cli import analyze, progress

    said: list[str] = []
    real = progress.progress_bar
    monkeypatch.setattr(progress, "progress_bar", lambda label, first="": (said.append(first), real(label, first))[1])
    monkeypatch.setattr(progress, "compiling", lambda jobs, gpus: f"compiling for {jobs} jobs")
    monkeypatch.setattr(analyze, "_compiling", lambda jobs: f"compiling for {jobs} jobs")
    write_log(tmp_path / "jobs.csv", "a,0,1,100", "b,10,2,50")
    ran = cotenant(*words, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "compiling for 2 jobs" in said
