"""Whatever the user gets wrong is one line on standard error that names the place, and exit code 2."""

from __future__ import annotations

import gzip
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import HEADER, cotenant, script, write_log


def _missing_column(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1", header="job_id,submit_s,num_gpus")


def _negative_duration(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10", "b,1,1,-5")


def _not_a_number(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10", "b,1,1,NaN")


def _duplicate_id(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10", "a,1,1,10")


def _too_large(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10", "big,1,64,10")


def _empty(folder: Path) -> Path:
    path = folder / "log.csv"
    path.touch()
    return path


def _truncated(folder: Path) -> Path:
    rows = "\n".join(f"j{row},{row},1,{row * 7 % 1000}" for row in range(5000))
    path = folder / "log.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{rows}\n".encode())[:4000])
    return path


def _unreadable(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10") / "inside"


def _good(folder: Path) -> Path:
    return write_log(folder / "log.csv", "a,0,1,10")


# what is wrong: (the log, further options, words that the line must hold)
ELEVEN: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], tuple[str, ...]]] = {
    "missing column": (_missing_column, (), ("log.csv line 1", "duration_s")),
    "negative duration": (_negative_duration, (), ("log.csv line 3", "duration_s", "-5")),
    "NaN": (_not_a_number, (), ("log.csv line 3", "duration_s", "NaN")),
    "duplicate id": (_duplicate_id, (), ("log.csv line 3", "'a'", "line 2")),
    "job larger than the cluster": (_too_large, (), ("log.csv", "'big'", "64", "2x4", "--skip-infeasible")),
    "empty file": (_empty, (), ("log.csv", "empty", HEADER)),
    "truncated gzip": (_truncated, (), ("log.csv.gz", "gzip", "truncated")),
    "unknown policy": (_good, ("--policy", "backfil"), ("unknown policy 'backfil'", "did you mean 'backfill'")),
    "bad parameter": (_good, ("--policy", "tiresias-l:treshold=5"), ("tiresias-l", "'treshold'", "'threshold'")),
    "unreadable path": (_unreadable, (), ("log.csv/inside",)),
    "bad cluster spec": (_good, ("--cluster", "2y4"), ("'2y4'", "15x4")),
}


@pytest.mark.parametrize("kind", ELEVEN)
def test_bad_input_is_one_line_exit_2_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    make, options, words = ELEVEN[kind]
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    outputs.mkdir()
    cluster = () if "--cluster" in options else ("--cluster", "2x4")
    targets = ("--json", outputs / "run.json", "--jobs-csv", outputs / "jobs.csv")
    ran = cotenant("simulate", make(inputs), *cluster, *options, *targets)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("cotenant: ")
    for word in words:
        assert word in ran.err
    assert list(outputs.iterdir()) == []


def test_the_installed_script_keeps_the_contract(tmp_path: Path) -> None:
    ran = script("simulate", _negative_duration(tmp_path), "--cluster", "2x4")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "log.csv line 3: duration_s is -5" in ran.err
    usage = script("simulate")
    assert (usage.code, usage.out, len(usage.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "compare LOG --cluster 1x4 --policies fifo,backfil --html x.html --jobs-csv new",
            "did you mean 'backfill'",
        ),
        ("compare LOG --cluster 1x4 --policies ,", "--policies"),
        ("compare LOG --cluster 1x4 --policies fifo --seeds 4-1", "--seeds '4-1'"),
        ("compare LOG --cluster 1x4 --policies fifo --loads none", "--loads 'none'"),
        ("compare LOG --cluster 1x4 --policies fifo --html x.html --gantt 9", "--gantt '9'"),
        ("simulate LOG", "--cluster"),
        ("simulate LOG --cluster 1x4 --json nowhere/run.json", "nowhere/run.json"),
        ("simulate LOG --cluster 1x4 --placement spead", "did you mean 'spread'"),
        ("simulate LOG --cluster 1x4 --costs cheap", "--costs 'cheap'"),
        ("simulate LOG --cluster 1x4 --measure 9-99", "--measure 9-99"),
        ("simulate LOG --cluster 1x4 --until nan", "--until nan"),
        ("simulate LOG --cluster 1x4 --seed -1", "--seed"),
        ("simulate LOG --cluster 1x4 --bogus", "--bogus"),
        ("simulate LOG --cluster 1x4 --policy ./mine.py:Mine", "mine.py"),
        ("why LOG nobody --at 5 --cluster 1x4", "'nobody'"),
        ("generate phily-like", "did you mean 'philly-like'"),
        ("traces describe nowhere.csv", "nowhere.csv"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_other_mistakes_are_one_line_too(words: str, expected: str, log: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    ran = cotenant(*words.replace("LOG", str(log)).split(), cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert expected in ran.err
    assert sorted(tmp_path.iterdir()) == before


def test_wrong_policy_of_a_user_is_named(log: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        inspect.cleandoc(
            """
            from cotenant.policies import PriorityPolicy

            class Short(PriorityPolicy):
                def priority(self, view):
                    return view.gpus[:1]
            """
        ),
        encoding="utf-8",
    )
    ran = cotenant("simulate", log, "--cluster", "1x4", "--policy", f"{mine}:Short")
    assert (ran.code, ran.out) == (2, "")
    assert "'Short'" in ran.err
    assert "shape" in ran.err


def test_skip_infeasible_leaves_out_and_says_so(tmp_path: Path) -> None:
    log = _too_large(tmp_path)
    ran = cotenant("simulate", log, "--cluster", "2x4", "--skip-infeasible", "--json", "-")
    assert ran.code == 0
    assert '"jobs": 1' in ran.out
    assert "left out 1 job" in ran.err
    assert "'big'" in ran.err


def test_unsorted_rows_are_sorted_with_a_warning(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", "late,50,1,10", "early,0,1,10")
    ran = cotenant("simulate", log, "--cluster", "1x4", "--jobs-csv", tmp_path / "jobs.csv")
    assert ran.code == 0
    assert "not sorted by submit time" in ran.err
    lines = (tmp_path / "jobs.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["early", "late"]
