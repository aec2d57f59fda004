from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    """The trace collection, or a skip that says what is missing."""
    folder = Path(os.environ.get("COTENANT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no trace collection at {folder}; set COTENANT_DATA")
    return folder
