"""`docs/ray.md`, its quick start followed literally, against real Ray on loopback."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from test_first_hour import ROOT, Terminal, blocks, follow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None and "CI" not in os.environ,
        reason="Ray is not installed: make components, or pip install -r requirements-ray.txt",
    ),
]


def test_the_quick_start(tmp_path: Path) -> None:
    given = blocks(ROOT / "docs" / "ray.md")
    assert len(given) == 4, "or the page was not read"
    terminal = Terminal(tmp_path)
    terminal.type("stty -echo; PS1=; PS2=; echo rea''dy\n")
    terminal.until("^ready$")
    try:
        follow(terminal, given)
    finally:
        terminal.close()
