from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Five jobs that fit 1x4, two of them together."""
    return write_log(tmp_path / "jobs.csv", "a,0,2,100", "b,10,4,50", "c,20,2,30", "d,30,1,10", "e,40,1,5")
