"""Help, listings and what they may load."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from cli_runner import ROOT, cotenant, script

from cotenant.policies import known_policies

VERBS = ("simulate", "compare", "policies", "generate", "traces", "why")


def test_help_lists_every_verb() -> None:
    ran = script("--help")
    assert (ran.code, ran.err) == (0, "")
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", ran.out, re.MULTILINE)
    assert cotenant("simulate", "-h").code == 0


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['cotenant', '--help']\n"
        "from cotenant.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print('LOADED', sorted({'numpy', 'numba', 'polars', 'yaml'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "LOADED []"


def test_version() -> None:
    assert re.fullmatch(r"cotenant \d+\.\d+\.\d+\S*\n", cotenant("--version").out)


def test_policies_are_listed_with_sources_and_parameters() -> None:
    rows = json.loads(cotenant("policies", "--json").out)
    kinds = {kind: [row["name"] for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
    assert kinds["policy"] == [*known_policies(), "as-is"]
    assert kinds["placement"] == ["count", "consolidated", "relaxed", "spread", "skew"]
    expected = {"philly-like", "helios-like", "pai-like", "gavel-like", "synergy-like", "ones-like", "ones-recorded"}
    assert set(kinds["generator"]) == expected
    assert all(row["description"] and row["source"] for row in rows)
    table = cotenant("policies").out
    assert all(name in table for names in kinds.values() for name in names)


def test_completion_can_be_shown() -> None:
    # Otherwise Typer asks which shell started it, and the answer depends on who runs the tests.
    ran = script("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_COTENANT_COMPLETE" in ran.out + ran.err


def test_every_link_and_file_of_the_readme_exists() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_table_of_policies_is_complete() -> None:
    text = Path(ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    for name in known_policies():
        assert f"`{name}`" in text
