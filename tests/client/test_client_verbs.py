"""The verbs for a live service, against a real server: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runner import SCRIPT, cotenant
from fake_service import ADMIN, NOW, USER_A, FakeService

from cotenant.api.front import Doors, Front
from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry, open_journal
from cotenant.service.options import Options
from cotenant.service.run import Site
from cotenant.service.store.clock import since_boot_s

pytestmark = pytest.mark.usefixtures("at_home")


def _out(*words: str | Path, code: int = 0) -> str:
    ran = cotenant(*words)
    assert ran.code == code, ran.err
    assert ADMIN not in ran.out + ran.err
    return ran.out


def _json(*words: str | Path) -> Any:
    return json.loads(_out(*words, "--json"))


def test_submit_a_command(service: FakeService, tmp_path: Path) -> None:
    ran = cotenant(
        "submit", "--gpus", "h200:2", "--tenant", "t", "--cpus", "1.5", "--mem", "2G", "--priority", "4", "--env",
        "A=b c", "--env", "PATH", "--max-runtime", "1h", "--retries", "2", "--deadline", "2h", "--",
        "python", "train.py", "--lr", "1 e", cwd=tmp_path,
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "1\n")
    spec = service.infos["1"].spec
    assert spec["run"] == "python train.py --lr '1 e'"
    assert (spec["name"], spec["workdir"], spec["mem_gib"], spec["gpu_type"]) == ("train", str(tmp_path), 2.0, "h200")
    assert spec["env"] == {"A": "b c", "PATH": os.environ["PATH"]}
    assert (spec["max_runtime_s"], spec["deadline_s"], spec["retries"], spec["priority"]) == (3600, 7200, 2, 4)
    assert _out("submit", "--after", "1", "--array", "0-2", "--name", "x", "--workdir", "/tmp", "--", "true") == (
        "2_0\n2_1\n2_2\n"
    )
    assert service.infos["2_0"].spec["after"] == ("1",)


def test_submit_files(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("run: python a.py\ngpus: 2\nenv: {A: 1}\ncheckpoint: {dir: ck}\n")
    (tmp_path / "many.yaml").write_text("- run: a\n- run: b\n  workdir: sub\n---\nrun: c\n")
    words = ("submit", tmp_path / "one.yaml", tmp_path / "many.yaml", "--priority", "3", "--env", "B=2", "--json")
    ran = cotenant(*words, cwd=tmp_path)
    assert json.loads(ran.out) == {"ids": [["1"], ["2"], ["3"], ["4"]]}
    assert {job.priority for job in service.infos.values()} == {3}
    assert service.infos["1"].spec["env"] == {"A": "1", "B": "2"}
    assert service.infos["3"].spec["workdir"] == str(tmp_path / "sub")
    assert service.infos["1"].spec["checkpoint_dir"] == str(tmp_path / "ck")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit",), "after '--'"),
        (("submit", "--gpus", "1"), "after '--'"),
        (("submit", "python", "train.py"), "a command goes after '--'"),
        (("submit", "none.yaml"), "cannot read 'none.yaml'"),
        (("submit", "--gpus", "many", "--", "x"), "field 'gpus'"),
        (("submit", "--env", "NOT_SET_HERE", "--", "x"), "NOT_SET_HERE"),
        (("ps", "--state", "runing"), "did you mean 'running'"),
        (("show", "99"), "no job '99'"),
        (("why", "99"), "no job '99'"),
        (("why", "99", "--at", "5"), "Missing argument 'JOB'"),
        (("why", "trace.csv", "a", "--at", "5"), "Missing option '--cluster'"),
        (("logs", "a b"), "job"),
        (("cancel", ".."), "no job '..'"),
        (("cancel",), "--all for all of them"),
        (("maintenance", "add", "n0", "--from", "soon", "--for", "1h"), "--from 'soon'"),
        (("maintenance", "add", "--from", "now", "--for", "1h"), "name nodes"),
        (("resubmit", "1", "--set", "gpus"), "KEY=VALUE"),
        (("set", "1", "colour=red"), "unknown field 'colour'"),
        (("set", "1", "priority=high"), "whole number"),
        (("set", "1", "priority"), "KEY=VALUE"),
        (("drain", "n9"), "no node 'n9'"),
        (("policy", "set", "best"), "unknown policy 'best'"),
        (("whatif", "--policy", ","), "write names"),
        (("token", "create", "--role", "king"), "unknown role"),
        (("token", "create", "--role", "user"), "needs a tenant"),
        (("token", "revoke", "t99"), "no token"),
        (("backup", "../x"), "path"),
        (("serve", "--gpus", "some"), "--gpus some"),
        (("serve", "--policy", "best"), "unknown policy"),
    ],
)
def test_bad_input_is_one_line_and_code_2(words: tuple[str, ...], said: str) -> None:
    ran = cotenant(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_listings(service: FakeService) -> None:
    _out("submit", "--name", "one", "--", "x")
    _out("submit", "--name", "two", "--", "x")
    service.start("1")
    service.move("2", JobState.FAILED)
    table = _out("ps")
    assert "one" in table
    assert "running" in table
    assert "two" not in table
    assert [job["id"] for job in _json("ps", "--all")] == ["1", "2"]
    assert [job["id"] for job in _json("ps", "--state", "failed,cancelled")] == ["2"]
    assert _json("show", "1")["attempts"][0]["number"] == 1
    assert "n0:[0, 1]" in _out("show", "1")
    assert "waiting for capacity" in _out("why", "1")
    assert _json("why", "1")["job"] == "1"
    assert [node["name"] for node in _json("nodes")] == ["n0", "n1"]
    assert "1/4" in _out("nodes")
    assert "submitted" in _out("events", "2")
    assert [item["seq"] for item in _json("events", "--after", "2")] == [3, 4]
    assert "fifo · 2/8 GPUs used · 1 running · 0 waiting" in _out("top")


def test_a_forecast_is_shown_with_its_interval(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    _out("submit", "--", "x")
    info = service.infos["1"]
    day_s = time.time() // 86400 * 86400
    for end_s, low_s, high_s, shown in (
        (day_s + 52320, day_s + 51600, day_s + 54300, "14:32 (14:20-15:05)"),
        (day_s + 52320, day_s + 52290, day_s + 52350, "14:32:00 (14:31:30-14:32:30)"),
        (day_s + 52320, None, None, "14:32:00"),
        (None, None, None, "-"),
    ):
        service.infos["1"] = replace(info, expected_end_s=end_s, expected_end_low_s=low_s, expected_end_high_s=high_s)
        assert f"  {shown}  " in _out("ps")
        assert f"expected  {shown}\n" in re.sub(" {2,}", "  ", _out("show", "1"))
        assert _json("ps")[0]["expected_end_low_s"] == low_s
    monkeypatch.undo()
    time.tzset()


def test_how_right_forecasts_were(service: FakeService, tmp_path: Path) -> None:
    ran = cotenant("forecast", "evaluate")
    assert (ran.code, ran.out, ran.err) == (0, "", "no job has ended yet of which something was foretold\n")
    _out("submit", "--", "x")
    page = tmp_path / "page.html"
    assert re.sub("─+\n", "", _out("forecast", "evaluate", "--plot", page)) == (
        "foretold  policy  forecasts    error  relative    bias  in interval  pinball\n"
        "at start  srtf            1  +20.0 s     25.0%  +25.0%         100%   5.83 s\n"
        "\n"
        "ended before  5%  10%  25%   50%   75%   90%   95%\n"
        "at start      0%   0%   0%  100%  100%  100%  100%\n"
        "\n"
        "intervals are now stretched by 1.00 at start\n"
        f"drawn in {page}\n"
    )
    assert "Forecasts against what happened" in page.read_text()
    assert _json("forecast", "evaluate")["errors"][0]["inside"] == 1.0


def test_forecasts_of_a_service_that_does_not_run(tmp_path: Path) -> None:
    home = tmp_path / "other"
    ran = cotenant("forecast", "evaluate", "--home", home)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "there is no journal.db" in ran.err
    home.mkdir(mode=0o700)
    spec = parse_job({"run": "x"}).as_dict()
    told = {"at": "start", "policy": "srtf", "expected_end_s": 1100.0, "low_s": 1050.0, "high_s": 1200.0}
    with open_journal(str(home / "journal.db"), lambda: 1000.0) as journal:
        journal.append([
            Entry("submit", "1", {"spec": spec, "tenant": "t", "user": "u"}),
            Entry("launch", "1", {"gpus": [["n0", [0]]]}),
            Entry("started", "1", {"at_s": 1000.0}),
            Entry("forecast", "1", told),
            Entry("exit", "1", {"to": "succeeded", "why": "exit code 0", "at_s": 1080.0}),
        ])  # fmt: skip
    (row,) = _json("forecast", "evaluate", "--home", home)["errors"]
    assert (row["forecasts"], row["error_s"], row["inside"]) == (1, 20.0, 1.0)


def test_terminal_codes_of_others_are_not_passed_on(service: FakeService) -> None:
    _out("submit", "--", "x")
    service.move("1", JobState.RUNNING, reason="\x1b[2Jgone")
    assert "\x1b" not in _out("ps") + _out("show", "1")


def test_changes(service: FakeService) -> None:
    _out("submit", "--", "x")
    assert _out("hold", "1") == "1: pending (held)\n"
    assert _json("resume", "1")[0]["state"] == "pending"
    assert _out("set", "1", "priority=5", "deadline=2h") == "1: priority 5, deadline 2h\n"
    assert service.set_calls == [{"priority": 5, "deadline": 7200.0}]
    assert _json("set", "1", "priority=6")["priority"] == 6
    assert "pending (requeued)" in _out("requeue", "1")
    ran = cotenant("cancel", "29", "1")
    assert (ran.code, ran.out, ran.err) == (2, "1: cancelled (requeued)\n", "cotenant: no job '29'\n")
    assert _out("resubmit", "1", "--set", "gpus=2") == "2\n"
    assert _out("cancel", "--all") == "1: cancelled (requeued)\n2: cancelled (waiting for capacity)\n"
    assert _out("drain", "n0") == "n0: draining\n"
    assert _out("drain", "n0", "--undo") == "n0: up\n"
    assert (_out("policy", "set", "srtf"), _out("policy"), _json("policy")) == ("srtf\n", "srtf\n", {"policy": "srtf"})
    assert _json("whatif", "--policy", "fifo,srsf")["jobs"][0]["srsf"] == NOW + 42
    table = _out("whatif", "--policy", "fifo")
    assert "srtf (now)" in table
    assert "42.0 s (30.0-90.0)" in table
    assert "the interval in which it lies 9 times of 10" in table
    assert _out("backup").startswith("backup-")


def test_tenants(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("groups: [{nodes: 2, gpus: 4, names: [n*]}]\ntenants: {research: {guaranteed: 6}}\n")
    assert _out("tenants", "set", "--file", file) == "1 tenant; 0 of 2 nodes dedicated or labelled\n"
    assert _out("tenants", "add", "nlp", "--parent", "research", "guaranteed=2") == "nlp: added under research\n"
    assert _out("tenants", "set", "nlp", "guaranteed=4", "borrow=2", "limits.gpus=3", "admins=ada,bob") == (
        "nlp: guaranteed 2 -> 4, borrow (default) -> 2, limits (default) -> {'gpus': 3}, "
        "admins (default) -> ['ada', 'bob']\n"
    )
    assert _out("tenants", "set", "nlp", "borrow=none") == "nlp: borrow 2 -> (default)\n"
    assert _out("tenants", "set", "--fair-share", "half_life=7d") == "fair_share: half_life 7d\n"
    listed = _out("tenants", "show").splitlines()
    assert [line.split()[:2] for line in listed[2:4]] == [["research", "6"], ["nlp", "4"]]
    assert "half-life of past use 7.00 d" in listed[4]
    assert [row["name"] for row in _json("tenants", "show")["tenants"]] == ["research", "nlp"]
    for words, said in (
        (("set", "nlp", "guaranteed=9"), "guaranteed is 6, but its children are guaranteed 9"),
        (("set", "nlp"), "give a tenant and KEY=VALUE"),
        (("set", "nlp", "guaranteed"), "'guaranteed' is not KEY=VALUE"),
        (("set", "npl", "weight=2"), "unknown tenant 'npl': did you mean 'nlp'?"),
        (("add", "nlp"), "tenant 'nlp' is there already"),
        (("remove", "research"), "has children"),
        (("set", "--file", str(tmp_path / "none.yaml")), "no such file"),
    ):
        ran = cotenant("tenants", *words)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert said in ran.err
    assert _json("tenants", "remove", "nlp")["done"] == "nlp: removed"


def test_tokens_show_a_secret_once() -> None:
    ran = cotenant("token", "create", "--role", "user", "--tenant", "t")
    secret = ran.out.strip()
    assert (ran.code, secret) == (0, "made-4-secret")
    assert secret not in _out("token", "list") + json.dumps(_json("token", "list"))
    assert _out("token", "revoke", "t5") == "t5: revoked\n"
    assert _json("token", "list")[-1]["revoked"] is True


def test_logs(service: FakeService) -> None:
    _out("submit", "--", "x")
    service.start("1").write_text("out\n")
    service.logs["1", "stderr"].write_text("err\n")
    shown = ["out\nerr\n", "out\nerr\n", "out\n", "err\n"]
    for more in ([], ["-f"]):
        assert [_out("logs", "1", *more, *w) for w in ([], ["--merged"], ["--stdout"], ["--stderr"])] == shown
        service.move("1", JobState.FAILED)
    assert (_out("logs", "1", "--tail", "1"), _out("logs", "1", "-t", "--stdout")) == ("err\n", "- out\n")


def test_logs_of_an_attempt_that_never_was_are_refused(service: FakeService) -> None:
    _out("submit", "--", "x")
    service.start("1").write_text("out\n")
    for more in ([], ["-f"], ["--tail", "1"]):
        ran = cotenant("logs", "1", "--attempt", "9", *more)
        assert (ran.code, ran.err) == (2, "cotenant: job '1' has no attempt 9: it has had 1\n")


@pytest.mark.parametrize("words", [("--since", "soon"), ("--stdout", "--stderr"), ("--tail", "-1")])
def test_logs_asked_for_in_a_way_that_means_nothing(service: FakeService, words: tuple[str, ...]) -> None:
    _out("submit", "--", "x")
    ran = cotenant("logs", "1", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_wait_tells_by_its_exit_code(service: FakeService) -> None:
    _out("submit", "--", "x")
    _out("submit", "--", "y")
    assert "pending" in _out("wait", "1", "--timeout", "0", code=124)
    service.move("1", JobState.SUCCEEDED)
    timer = threading.Timer(0.05, service.move, ("2", JobState.FAILED))
    timer.start()
    assert _out("wait", "1") == "1: succeeded (waiting for capacity)\n"
    assert "2: failed" in _out("wait", "1", "2", code=1)
    timer.join()


@pytest.mark.parametrize("words", [("logs", "1", "-f"), ("wait", "1"), ("events", "-f")])
def test_ctrl_c_only_detaches(words: tuple[str, ...], service: FakeService) -> None:
    _out("submit", "--", "x")
    service.start("1").write_text("begun\n")
    asked = threading.Event()
    for name in ("open_log", "wait_events"):
        real = getattr(service, name)
        setattr(service, name, lambda *args, real=real: asked.set() or real(*args))
    process = subprocess.Popen([SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asked.wait(20)
    if words[0] != "wait":
        assert process.stdout is not None
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == (0 if words[0] == "events" else 130)
    assert "detached" in err
    assert err.count("\n") == 1
    assert service.infos["1"].state is JobState.RUNNING


def test_nobody_there_is_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_URL", "http://127.0.0.1:1")
    ran = cotenant("ps")
    assert (ran.code, ran.err) == (3, "cotenant: no service at http://127.0.0.1:1: start it with `cotenant serve`\n")


def test_a_token_that_is_not_for_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_TOKEN", USER_A)
    ran = cotenant("token", "list")
    assert (ran.code, ran.err) == (2, "cotenant: this needs a token of role admin\n")


def test_doctor(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {check["name"]: check for check in _json("doctor")}
    assert list(checks) == ["python", "home", "token", "disk", "service", "gpus", "cgroups", "isolation"]
    assert {checks[name]["result"] for name in ("python", "home", "token", "service")} == {"ok"}
    (at_home / "token").chmod(0o644)
    assert "fail  token" in _out("doctor", code=1)
    (at_home / "token").chmod(0o600)
    monkeypatch.setenv("COTENANT_URL", "http://127.0.0.1:1")
    assert "no service at" in _out("doctor")


def test_serve_hands_over(monkeypatch: pytest.MonkeyPatch, at_home: Path) -> None:
    called: list[tuple[Options, Site]] = []
    doors: list[Doors] = []

    def serve(front: partial[Front], options: Options, site: Site) -> None:
        called.append((options, site))
        doors.append(front.args[0])

    monkeypatch.setattr("cotenant.service.run.serve", serve)
    _out("serve")
    _out(
        *("serve", "--gpus", "v100:1,k80:2", "--policy", "srtf", "--db", "sqlite:///x", "--port", "0", "--grace", "5"),
        *("--home", "/h", "--max-suspended", "0", "--round", "60", "--profile", "h200", "--share", "mps"),
        *("--forecast-every", "0"),
    )
    given: dict[str, Any] = {"grace_s": 5.0, "max_suspended": 0, "round_s": 60.0, "profile": "h200", "policy": "srtf"}
    given |= {"steady": since_boot_s, "forecast_every_s": 0.0}
    assert called == [
        (Options(at_home, policy="fifo", steady=since_boot_s, forecast_every_s=5.0), Site()),
        (
            Options(Path("/h"), **given),
            Site("sqlite:///x", "local", ["v100", "k80", "k80"], "mps"),
        ),
    ]
    assert doors == [Doors(at_home), Doors(Path("/h"), port=0)]
