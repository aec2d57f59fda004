"""What a call of the command line to a running service loads: little, or it takes longer than its answer."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_runner import cotenant

from cotenant.cli.text_table import TextTable

HEAVY = (
    "numpy", "numba", "scipy", "polars", "fastapi", "uvicorn", "sqlalchemy", "pydantic", "rich", "click",
    "pygments", "asyncio", "yaml", "cotenant.engine", "cotenant.backends",
)  # fmt: skip
RUN = f"""
import sys
from cotenant.cli.main import main
for words in sys.argv[1].split(";"):
    sys.argv[1:] = words.split()
    try: main()
    except SystemExit as end: assert not end.code, (words, end.code)
print("LOADED", *[name for name in {HEAVY} if name in sys.modules])
"""


@pytest.mark.usefixtures("at_home")
def test_verbs_of_a_live_service_load_nothing_heavy() -> None:
    words = (
        "submit --gpus 1 --cpus 2 --retries 1 --env A=b -- true;ps --limit 5;show 1;why 1;nodes;events;policy;"
        "token list;set 1 name=x;hold 1;resume 1;whatif --policy srtf;top --once;logs 1;cancel 1"
    )
    ran = subprocess.run([sys.executable, "-c", RUN, words], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1:] == ["LOADED"], ran.stderr


@pytest.mark.usefixtures("at_home")
def test_verbs_that_go_into_a_job_load_nothing_heavy() -> None:
    """They find no such job; what they would load after that is what `logs` does."""
    words = "exec 99 -- true;attach 99;port 99 80"
    strict = RUN.replace("assert not end.code", "assert end.code == 2")
    ran = subprocess.run([sys.executable, "-c", strict, words], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1:] == ["LOADED"], ran.stderr


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ps", "--limit", "0"), "'--limit'"),
        (("ps", "--limit", "many"), "'--limit'"),
        (("submit", "--cpus", "few", "--", "true"), "'--cpus'"),
        (("show",), "'JOB'"),
    ],
)
def test_arguments_that_are_wrong_are_still_told(words: tuple[str, ...], said: str) -> None:
    ran = cotenant(*words)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_table_folds_its_widest_column_between_words() -> None:
    made = TextTable(
        ("id", "gpus", "reason"), [("1", "12", "waits for 漢字 and more"), ("10", "3", "")], right=("gpus",)
    )
    assert made.text().splitlines() == [
        "id  gpus  reason",
        "─" * 33,
        "1     12  waits for 漢字 and more",
        "10     3",
    ]
    assert made.text(24).splitlines()[2:] == ["1     12  waits for 漢字", "          and more", "10     3"]
    assert made.text(3).splitlines()[0] == "id  gpus  reason"  # no narrower than can be read
