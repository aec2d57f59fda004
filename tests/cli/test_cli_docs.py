"""The policies that the documentation shows do what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runner import ROOT, cotenant

WORKLOAD = "philly-like:jobs=150,seed=3,load=1.2,max_gpus=8"


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def _policies(page: str) -> list[tuple[str, str]]:
    """(class, code) of every block that defines a policy."""
    pattern = r"^class (\w+)\((?:Order|Priority|Plan)Policy\)"
    found = [(re.search(pattern, code, re.MULTILINE), code) for code in _blocks(page)]
    return [(match[1], code) for match, code in found if match]


def _simulate(policy: str) -> dict[str, float]:
    ran = cotenant("simulate", WORKLOAD, "--cluster", "2x8", "--policy", policy, "--json", "-")
    assert ran.code == 0, ran.err
    summary: dict[str, float] = json.loads(ran.out)
    return summary


@pytest.mark.parametrize("page", ["README.md", "docs/policies.md"])
def test_policies_of_the_pages_run_and_are_short(page: str, tmp_path: Path) -> None:
    shown = _policies(page)
    assert shown
    for name, code in shown:
        assert len([line for line in code.splitlines() if line.strip()]) <= 30
        (tmp_path / "mine.py").write_text(code, encoding="utf-8")
        summary = _simulate(f"{tmp_path / 'mine.py'}:{name}")
        assert summary["finished"] == summary["jobs"] == 150


def test_srsf_in_numpy_gives_the_same_jobs(tmp_path: Path) -> None:
    policies = {"built-in": "srsf", "own": f"{ROOT / 'examples/policies/numpy_srsf.py'}:NumpySrsf"}
    for name, policy in policies.items():
        ran = cotenant(
            "simulate", WORKLOAD, "--cluster", "2x8", "--policy", policy, "--jobs-csv", tmp_path / f"{name}.csv"
        )
        assert ran.code == 0
    assert (tmp_path / "own.csv").read_bytes() == (tmp_path / "built-in.csv").read_bytes()


@pytest.mark.parametrize("policy", ["aging.py:Aging:weight=8", "pack_in_order.py:PackInOrder"])
def test_examples_run(policy: str) -> None:
    assert _simulate(f"{ROOT / 'examples/policies'}/{policy}")["finished"] == 150


def test_compare_takes_files_and_names_side_by_side() -> None:
    own = f"{ROOT / 'examples/policies/aging.py'}:Aging"
    ran = cotenant(
        "compare",
        WORKLOAD,
        "--cluster",
        "2x8",
        "--policies",
        f"srsf,{own}:weight=2,fifo",
        "--workers",
        "1",
        "--json",
        "-",
    )
    assert [row["policy"] for row in json.loads(ran.out)] == ["srsf", f"{own}:weight=2", "fifo"]
