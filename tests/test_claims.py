"""What README and docs claim: how claims are read, what counts as stale, and that the cheap ones hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.claims import DATA, ROOT, all_claims, check, without_claim
from bench.claims_text import Claim, claims_of, stale

PAGE = """# Page

<!-- claim exact within=1%: python -m bench.some -->

| policy | JCT s | against |
|---|---|---|
| `fifo` | 12,345 | **+2.5 %** |
| `srtf:weigh=false` | 9,876.5 | - |

<!-- claim slow needs=data figures=2: python -m bench.some --more -->
```
policy    wall s   JCT s
fifo         1.7     123
```

<!-- claim exact: cotenant simulate a b
30 % utilisation = gpus +([0-9.]+)
2 of 7 failed = failed (\\d+) of (\\d+)
-->
It had 30 % utilisation, and 2 of
7 failed.
"""
PRINTED = """policy                JCT    against fifo
fifo               12,345.1      +2.46
srtf:weigh=false    9,876.54
"""


def _claims(folder: Path, text: str = PAGE) -> list[Claim]:
    (folder / "page.md").write_text(text, encoding="utf-8")
    return list(claims_of(folder, folder / "page.md"))


def _stale(claim: Claim, printed: str) -> list[int]:
    return [one.line for one in stale(claim, printed)]


def test_claims_are_read_with_what_stands_under_them(tmp_path: Path) -> None:
    table, block, words = _claims(tmp_path)
    assert (table.kind, table.line, table.within, table.command) == ("exact", 3, 0.01, "python -m bench.some")
    assert (block.kind, block.options) == ("slow", {"needs": "data", "figures": "2"})
    assert words.patterns[1] == ("2 of 7 failed", r"failed (\d+) of (\d+)")
    assert [line for _, line in words.block] == ["It had 30 % utilisation, and 2 of", "7 failed."]
    with pytest.raises(ValueError, match=r"page\.md:1"):
        _claims(tmp_path, "<!-- claim perhaps: python -m bench.some -->\n| a | 1 |\n")


def test_a_figure_that_is_no_longer_printed_is_stale(tmp_path: Path) -> None:
    table, block, words = _claims(tmp_path)
    assert _stale(table, PRINTED) == []
    assert _stale(table, PRINTED.replace("12,345.1", "12,700.0")) == [7]
    assert _stale(table, PRINTED.replace("9,876.54", "9,976.54")) == [8]
    assert _stale(table, PRINTED.replace("srtf:weigh", "srsf:weigh")) == [8]
    assert _stale(block, "fifo  99.9  123.4") == []  # a time is not compared, and what is said is rounded
    assert _stale(block, "fifo  1.7  124.4") == [13]
    assert _stale(words, "gpus 30.2\nfailed 2 of 7") == []
    assert _stale(words, "gpus 31.2\nfailed 2 of 8") == [20, 20]


def test_a_claim_without_figures_is_stale(tmp_path: Path) -> None:
    (claim,) = _claims(tmp_path, "<!-- claim exact: python -m bench.some -->\n| a | b |\n|---|---|\n")
    assert _stale(claim, "a 1") == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "claim", [claim for claim in all_claims() if claim.kind == "exact"], ids=lambda one: f"{one.page}:{one.line}"
)
def test_what_is_cheap_to_rerun_holds(claim: Claim) -> None:
    if claim.options.get("needs") == "data" and not (DATA / "traces").is_dir():
        pytest.skip("COTENANT_DATA names no logs")
    assert check(claim) == []


def test_every_table_of_the_readme_has_a_claim() -> None:
    assert without_claim(Path(__file__).resolve().parents[1] / "README.md") == []


def test_every_system_names_checks_that_exist() -> None:
    """Each line of docs/systems.md has a test or a bench, and all of them are there."""
    text = (ROOT / "docs/systems.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| (\*\*|\||\d)", line)]
    systems = re.findall(r"^\| \*\*(.+?)\*\*", "\n".join(rows), re.MULTILINE)
    assert len(systems) == 2 * 13
    assert len(set(systems)) == 13
    missing = []
    for row in rows:
        named = re.findall(r"`(tests/[^`]+|python -m bench\.\w+)", row)
        assert named, f"nothing checks: {row}"
        missing += [name for name in named if not _exists(name)]
    assert not missing


def _exists(name: str) -> bool:
    """`python -m bench.X`, a file or folder of tests, or `file::test`."""
    path, _, test = name.removeprefix("python -m ").partition("::")
    file = ROOT / (path if path.startswith("tests/") else f"{path.replace('.', '/')}.py")
    return file.exists() and (not test or f"def {test}(" in file.read_text())


def test_benches_that_check_a_system_can_fail() -> None:
    """A bench named there ends with another status than 0 where its claim does not hold."""
    named = re.findall(r"`python -m bench\.(\w+)", (ROOT / "docs/systems.md").read_text())
    assert named
    cannot = [name for name in named if "sys.exit(" not in (ROOT / f"bench/{name}.py").read_text()]
    assert not cannot
