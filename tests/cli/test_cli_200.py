"""Mistakes, more than two hundred: each is one line on standard error and exit code 2; no traceback, no silence."""

from __future__ import annotations

from pathlib import Path

import bad_neighbours
import pytest
from bad_inputs import ALL, FILES
from cli_runner import cotenant, write_log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bad")
    for name, text in (FILES | bad_neighbours.FILES).items():
        (made / name).write_text(text, encoding="utf-8")
    write_log(made / "jobs.csv", "a,0,2,100", "b,10,4,50", "c,20,2,30", "d,30,1,10", "e,40,1,5")
    return made


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def test_there_are_two_hundred() -> None:
    assert len(set(ALL)) == len(ALL) >= 200


@pytest.mark.parametrize("words", [*ALL, *bad_neighbours.ALL])
def test_a_mistake_is_one_line(words: str, folder: Path) -> None:
    before = _files(folder)
    ran = cotenant(*("jobs.csv" if word == "LOG" else word for word in words.split()), cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("cotenant: ")
    assert len(ran.err) > len("cotenant: ") + 10
    assert "Traceback" not in ran.err
    assert _files(folder) == before
