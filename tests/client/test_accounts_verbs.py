"""`cotenant usage` and `cotenant share` against a real server: what they print, and whom they show what."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli_runner import cotenant
from fake_service import NOW, USER_A, FakeService

from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def two_tenants(service: FakeService) -> FakeService:
    for tenant, user in (("a", "ann"), ("b", "=bob")):
        service.submit(Caller(user, Role.USER, tenant), [parse_job({"run": "x"})])
    return service


def test_usage_in_a_table_json_and_csv(two_tenants: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = cotenant("usage", "--by", "tenant, user")
    head, _, first, second, total = shown.out.splitlines()
    assert head.split()[:3] == ["tenant", "user", "GPU-hours"]
    assert (first.split()[:4], total.split()[:3]) == (["a", "ann", "2.00", "1"], ["total", "-", "4.00"])
    assert second.split()[1] == "=bob"
    found = json.loads(cotenant("usage", "--json").out)
    assert (found["by"], [row["gpu_hours"] for row in found["rows"]]) == (["tenant"], [2.0, 2.0])
    rows = list(csv.DictReader(io.StringIO(cotenant("usage", "--by", "user", "--csv").out)))
    assert [(row["user"], row["gpu_hours"]) for row in rows] == [("'=bob", "2.0"), ("ann", "2.0")]
    half = json.loads(cotenant("usage", "--from", _iso(NOW + 900), "--to", _iso(NOW + 1800), "--json").out)
    assert half["total"]["gpu_hours"] == pytest.approx(2 * 0.5)
    monkeypatch.setenv("COTENANT_TOKEN", USER_A)
    assert [row["tenant"] for row in json.loads(cotenant("usage", "--json").out)["rows"]] == ["a"]


def _iso(at_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_s, UTC).isoformat()


def test_share_shows_the_tree_and_the_arithmetic(service: FakeService) -> None:
    lines = cotenant("share").out.splitlines()
    rows = {line.split()[0]: line for line in lines[2:5]}
    assert list(rows) == ["a", "b", "b1"]
    assert rows["b1"].startswith("  b1 ")
    assert rows["a"].split()[-2] == "-", "no decision has said it yet"
    assert rows["b1"].split()[1:] == ["4", "8.0", "-", "1", "6", "1.5", "2", "(b)", "0", "0", "6", "0.75"]
    assert lines[-1] == "16 GPUs under fifo, 4 idle; only now counts"
    one = cotenant("share", "--tenant", "b1").out
    assert "b1 holds 6 of 4 guaranteed GPUs, 2 borrowed (2 from b)." in one
    assert "a holds 6 of 8" in cotenant("share", "--arithmetic").out
    assert len(one.splitlines()) < len(lines) + 2
    found = json.loads(cotenant("share", "--json").out)
    assert found["tenants"][2]["borrowed_from"] == {"b": 2}
    gone = cotenant("share", "--tenant", "c")
    assert (gone.code, gone.err) == (2, "cotenant: unknown tenant 'c': known: a, b, b1\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("usage", "--by", "tennant"), "unknown --by 'tennant'"),
        (("usage", "--from", "soon"), "--from soon: write how long ago"),
        (("usage", "--from", "2026-01-02", "--to", "2026-01-01"), "--from must be before --to"),
        (("usage", "--csv", "--json"), "not both"),
    ],
)
def test_bad_input_is_one_line_and_code_2(words: tuple[str, ...], said: str) -> None:
    ran = cotenant(*words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err
