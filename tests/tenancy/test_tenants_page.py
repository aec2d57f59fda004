"""docs/tenants.md has an example in numbers: here it is worked out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_filling import case_of, limits

from cotenant.workload.cluster_file import load_cluster

PAGE = (Path(__file__).parents[2] / "docs" / "tenants.md").read_text(encoding="utf-8")
EXAMPLE = PAGE[PAGE.index("## An example in numbers") : PAGE.index("## Trying it")]
LINES = re.findall(r"^\| ([^|]*)\| ([^|]*\d[^|]*)\| ([^|]*\d[^|]*)\|", EXAMPLE, re.M)


def yaml_of(text: str, path: Path) -> str:
    path.write_text(text[text.index("```yaml") + 8 : text.index("```", text.index("```yaml") + 8)])
    return str(path)


def numbers(cell: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", cell)}


def test_the_page_shows_trees_that_can_be_read(tmp_path: Path) -> None:
    whole = load_cluster(yaml_of(PAGE, tmp_path / "whole.yaml"))
    assert whole.tenants is not None
    assert whole.tenants.of("vision").lend == 8
    assert len(LINES) == 6


@pytest.mark.parametrize(("hold", "ask", "may"), LINES)
def test_the_example_in_numbers(tmp_path: Path, hold: str, ask: str, may: str) -> None:
    cluster = load_cluster(yaml_of(EXAMPLE, tmp_path / "c.yaml"))
    assert cluster.tenants is not None
    holds = numbers(hold)
    waits = tuple((name, int(gpus), int(gangs)) for name, gangs, gpus in re.findall(r"(\w+) (\d+) x (\d+)", ask))
    case = case_of(cluster.tenants, cluster.gpus - sum(holds.values()), holds, waits)
    assert {name: gpus for name, gpus in limits(case).items() if gpus} == numbers(may)
