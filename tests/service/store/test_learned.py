"""What was measured of jobs, by kind and wider; it survives snapshots, and its size has a bound."""

from __future__ import annotations

import json
import math

import pytest

from cotenant.core.jobspec import JobSpec
from cotenant.journal import Record
from cotenant.service.store import learned as learning
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.learned import LENGTH, SAVE, START, WORD, Learned, is_python, phase_keys, program


def job(run: str = "python train.py", model: str = "") -> LiveJob:
    return LiveJob("1", 1, JobSpec(run, model=model), "t", "u", 0.0)


@pytest.mark.parametrize(
    ("run", "name", "python"),
    [
        ("python -u /data/train.py --epochs 3", "train.py", True),
        ("CUDA=1 torchrun --nproc 2 ./run_clm.py", "run_clm.py", True),
        ("python -m my.trainer x", "my.trainer", True),
        ("A=b /opt/bin/solver --in x", "solver", False),
        ("", "", False),
    ],
)
def test_what_a_command_runs(run: str, name: str, python: bool) -> None:
    assert (program(run), is_python(run)) == (name, python)


def test_the_narrow_goes_before_the_wide() -> None:
    learned, keys = Learned(), phase_keys(job(), "a100")
    learned.add(START, keys[1:], 30.0)
    learned.add(START, keys[:1], 10.0)
    found = [learned.of(START, keys[at:]) for at in range(3)]
    assert [math.exp(one.mean) for one in found if one is not None] == pytest.approx([10.0, 30.0, 30.0])
    assert learned.of(SAVE, keys) is None


def test_the_longest_unused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MOST_KEYS", 3)
    learned = Learned()
    for name in ("a", "b", "a", "c", "d"):
        learned.add(START, [("runs", name)], 1.0)
    assert [row[1][1] for row in learned.rows()] == ["a", "c", "d"]


def test_an_attempt_is_learned_from_and_a_snapshot_keeps_it() -> None:
    book = Book()
    spec = {"run": "python train.py", "expected_s": 200.0}
    records = [
        ("submit", {"spec": spec, "tenant": "t", "user": "u"}),
        ("launch", {"gpus": [["n", [0]]]}),
        ("started", {"at_s": 12.0, "type": "a100"}),
        ("ready", {"start_s": 9.0, "restore_s": 1.0}),
        ("exit", {"to": "succeeded", "why": "", "at_s": 112.0, "code": 0, "exit_s": 2.0, "step_s": 0.5}),
    ]
    for number, (kind, data) in enumerate(records):
        book.apply(Record(number + 1, 10.0 + number, kind, "1", data))
    found = {row[0]: math.exp(row[3]) for row in book.learned.rows()}
    expected = {START: 8.0, "restore": 1.0, "exit": 2.0, "step": 0.5, LENGTH: 100.0, WORD: 0.5}
    assert found == pytest.approx(expected)
    assert Book.thaw(book.freeze()).learned.rows() == book.learned.rows()
    data = json.loads(book.freeze())
    del data["learned"]  # as older versions wrote it
    for attempt in data["jobs"][0]["attempts"]:
        del attempt["gpu_type"], attempt["start_s"]
    old = Book.thaw(json.dumps(data).encode())
    assert (old.learned.rows(), old.jobs["1"].last.start_s) == ([], 0.0)
